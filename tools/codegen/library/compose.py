"""Puts the candidates of regions together: one kernel file and one plan for the whole model.

The plan carries the model's outline out. What is in no region, or in one that is left alone, is
the call of the library that eager PyTorch makes; a region with a candidate is that candidate's own
plan, written out once for each place in which the region stands, on that place's tensors and
weights. Kernels of a class stand once, in a namespace of their own; their tunables have the values
that the class's search found. So the whole is a candidate like any other: the same contract, the
same judge, the same export. What is not needed any more is let go of, as eager PyTorch does.

Not covered: plans that return in several places (`ComposeError` says so, and the class stays with
the library).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.candidates.plan.validate import validate_plan
from kernelwright.tools.candidates.plan.vocabulary import RESERVED
from kernelwright.tools.codegen.library.prepare import without_prepare
from kernelwright.tools.codegen.lower.operators.library import PLACEMENT, written
from kernelwright.tools.languages import new_candidate, parse_kernel
from kernelwright.tools.tasks.regions import in_order, keeps_layout
from kernelwright.tools.types import (
    Candidate,
    Graph,
    LanguageName,
    Node,
    Ref,
    Scalar,
    TensorSpec,
)
from kernelwright.tools.types.graph import base, refs
from kernelwright.tools.types.outline import Outline, Region, RegionClass

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.MULTILINE)
_DECLARED = re.compile(r"^[ \t]*// (?:tune|require):.*\n?", re.MULTILINE)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)

# What only shapes anew, and may refuse a layout; `reshape` copies instead.
_SHAPED = frozenset({"_unsafe_view", "view"})
_OF_NEIGHBOURS = frozenset({"aten.view.dtype", "aten.view_as_complex.default"})


class ComposeError(ValueError):
    """Why a candidate of a region cannot become part of a whole."""


@dataclass(frozen=True)
class Part:
    """A class of regions and the candidate that serves them."""

    of: RegionClass
    candidate: Candidate


def compose(
    graph: Graph,
    parts: Sequence[Part],
    parameters: Sequence[str],
    language: LanguageName,
) -> Candidate:
    """One candidate for the whole model.

    Args:
        graph: the outline's.
        parts: the classes that kernels of ours compute; the others stay with the library.
        parameters: the names of the forward's arguments, tensors and others.
        language: of the kernels.

    Raises:
        ComposeError: a part cannot be written into a whole.
        ContractError: the whole breaks the contract, as a plan of that length may.
    """
    fitted = {part.of.name: _Fitted.of(part) for part in parts}
    at_home = {region: fitted[part.of.name] for part in parts for region in part.of.regions}
    writer = _Writer(graph, at_home, parameters)
    kernel = _kernel([fitted[part.of.name] for part in parts])
    plan = writer.plan(list(in_order(graph, at_home)))
    validate_plan(plan, parse_kernel(kernel, language))
    return _candidate(language, kernel, plan, parts)


def compose_in_parts(
    outline: Outline,
    parts: Sequence[Part],
    parameters: Sequence[str],
    language: LanguageName,
) -> Candidate:
    """One candidate for a model that is traced in parts: a function for each that has a kernel.

    Args:
        outline: with the graphs of the task's parts.
        parts: see `compose`.
        parameters: see `compose`.
        language: see `compose`.

    Raises:
        ComposeError: see `compose`.
        ContractError: see `compose`.
    """
    fitted = {part.of.name: _Fitted.of(part, prepares=False) for part in parts}
    kernel = _kernel(list(fitted.values()))
    functions: list[str] = []
    for number, graph in enumerate(outline.parts):
        inside = {node.name for node in graph.nodes}
        at_home = {
            region: fitted[part.of.name]
            for part in parts
            for region in part.of.regions
            if region.nodes[0] in inside
        }
        if at_home:
            text = _Writer(graph, at_home, graph.inputs).plan(list(in_order(graph, at_home)))
            functions.append(text.replace("def forward(", f"def part_{number}(", 1))
    listed = ", ".join(parameters)
    plan = "\n\n".join([*functions, f"def forward({listed}):\n    return reference({listed})\n"])
    validate_plan(plan, parse_kernel(kernel, language))
    return _candidate(language, kernel, plan, parts)


def _candidate(language: LanguageName, kernel: str, plan: str, parts: Sequence[Part]) -> Candidate:
    return new_candidate(
        language,
        kernel,
        plan,
        parents=tuple(part.candidate.id for part in parts),
        strategies=tuple(f"{part.of.name}={part.candidate.id}" for part in parts),
    )


@dataclass(frozen=True)
class _Fitted:
    """A class's candidate with its settings in place and names that are its own."""

    name: str
    words: str
    includes: tuple[str, ...]
    source: str
    exported: tuple[str, ...]
    forward: ast.FunctionDef
    prepare: ast.FunctionDef | None

    @classmethod
    def of(cls, part: Part, *, prepares: bool = True) -> _Fitted:
        """`prepares`: whether the whole has a `prepare`; else every call does what that does."""
        candidate = part.candidate
        parsed = parse_kernel(candidate.kernel, candidate.language)
        settings = complete_settings(parsed, candidate.settings)
        values = {item.name: str(item.value) for item in settings}
        called = {item.name: f"{part.of.name.lower()}_{item.name}" for item in parsed.functions}
        text = _DECLARED.sub("", _INCLUDE.sub("", candidate.kernel))
        plan = candidate.plan if prepares else _unprepared(candidate.plan)
        functions = _functions(plan, values, called)
        return cls(
            name=part.of.name,
            words=f"{part.of.words}, in {len(part.of.regions)} places",
            includes=tuple(line.strip() for line in _INCLUDE.findall(candidate.kernel)),
            source=_renamed(text, called | values).strip(),
            exported=tuple(called.values()),
            forward=functions["forward"],
            prepare=functions.get("prepare"),
        )


def _unprepared(plan: str) -> str:
    try:
        return without_prepare(plan)
    except ValueError as error:
        raise ComposeError(str(error)) from None


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: names.get(word[0], word[0]), text)


def _functions(
    plan: str, values: Mapping[str, str], called: Mapping[str, str]
) -> dict[str, ast.FunctionDef]:
    """The plan's functions, tunables as numbers and kernels by their new names."""
    tree = _Valued(values, called).visit(ast.parse(plan))
    found = {item.name: item for item in tree.body if isinstance(item, ast.FunctionDef)}
    for function in found.values():
        returns = [part for part in ast.walk(function) if isinstance(part, ast.Return)]
        if len(returns) != 1 or function.body[-1] is not returns[0]:
            raise ComposeError("its plan returns in several places")
    return found


class _Valued(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, str], called: Mapping[str, str]) -> None:
        self._values, self._called = values, called

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(int(self._values[node.id])) if node.id in self._values else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="launch"), args=[ast.Constant(value=str() as name)]):
                node.args = [ast.Constant(self._called[name])]
        return node


def _kernel(fitted: Sequence[_Fitted]) -> str:
    includes = dict.fromkeys(line for one in fitted for line in one.includes)
    parts = ["\n".join(includes)]
    for one in fitted:
        undone = "".join(f"\n#undef {name}" for name in dict.fromkeys(_DEFINED.findall(one.source)))
        name = one.name.lower()
        # Whoever calls them from C++, as a sanitizer's replay does, finds them by their own names.
        used = "".join(f"\nusing {name}::{function};" for function in one.exported)
        space = f"namespace {name} {{\n{one.source}\n}}{undone}{used}"
        parts.append(f"// {one.name}: {one.words}\n{space}")
    return "\n\n".join(part for part in parts if part) + "\n"


class _Writer:
    """Writes the plan of a whole."""

    def __init__(
        self, graph: Graph, at_home: Mapping[Region, _Fitted], parameters: Sequence[str]
    ) -> None:
        self._graph, self._at_home, self._parameters = graph, at_home, parameters
        self._nodes = {node.name: node for node in graph.nodes}
        self._ours = {name for region in at_home for name in region.outputs}
        self._picked = {refs(node)[0] for node in graph.nodes if node.op == "getitem"}
        self._prepare_body: list[ast.stmt] = []
        self._prepared: dict[str, ast.expr] = {}

    def plan(self, units: Sequence[Node | Region]) -> str:
        """Both functions of the plan."""
        last = self._last_uses(units)
        lines: list[str] = []
        for number, unit in enumerate(units):
            if isinstance(unit, Region):
                lines += self._region(unit, f"s{number}_")
            else:
                lines += self._call(unit)
            if done := last.get(number):
                lines.append(f"{' = '.join(done)} = 0")
        for mutation in self._graph.mutations:
            lines.append(f'update("{mutation.target}", {self._name(mutation.node)})')
        lines.append(f"return {self._returned()}")
        body = "\n".join(f"    {line}" for text in lines for line in text.splitlines())
        return f"{self._prepare()}def forward({', '.join(self._parameters)}):\n{body}\n"

    def _prepare(self) -> str:
        if not self._prepare_body:
            return ""
        keys = [ast.Constant(name) for name in self._prepared]
        made = ast.Return(ast.Dict(keys=list(keys), values=list(self._prepared.values())))
        body = "\n".join(
            f"    {line}"
            for statement in (*self._prepare_body, made)
            for line in ast.unparse(ast.fix_missing_locations(statement)).splitlines()
        )
        return f"def prepare(weights):\n{body}\n\n\n"

    def _name(self, node: str) -> str:
        """How the plan calls a node's result."""
        found = self._nodes[node]
        if found.op == "input":
            return node
        if found.op in ("weight", "constant"):
            return f'weights["{found.target}"]'
        if found.op == "getitem" and node not in self._ours:
            place = found.args[1]
            assert isinstance(place, Scalar)
            return f"n_{refs(found)[0]}_{place.value}"
        return f"n_{node}"

    def _call(self, node: Node) -> Iterator[str]:
        """The library's call, as eager PyTorch makes it."""
        if node.op in ("input", "weight", "constant", "getitem"):
            return
        spelt = self._packed if _reads_memory(node) else self._spelt
        given = [written(arg, spelt) for arg in node.args]
        given += [
            f"{k}={written(arg, self._spelt)}" for k, arg in node.kwargs if k not in PLACEMENT
        ]
        made = self._made(node)
        yield f"{made} = aten.{_called(node)}({', '.join(given)})"

    def _made(self, node: Node) -> str:
        if node.name not in self._picked:
            return f"n_{node.name}"
        names = [f"n_{node.name}_{number}" for number in range(len(node.out))]
        return f"({', '.join(names)},)" if len(names) == 1 else ", ".join(names)

    def _spelt(self, ref: Ref) -> str:
        return self._name(ref.node)

    def _packed(self, ref: Ref) -> str:
        return f"{self._name(ref.node)}.contiguous()"

    def _returned(self) -> str:
        texts = [self._name(name) for name in self._graph.outputs]
        if self._graph.output_structure == "tensor":
            return texts[0]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def _region(self, region: Region, prefix: str) -> Iterator[str]:
        """A candidate's plan on this place's tensors; every name of its own is prefixed."""
        fitted = self._at_home[region]
        weights = {
            f"w{number}": str(self._nodes[name].target)
            for number, name in enumerate(region.weights)
        }
        parameters = [item.arg for item in fitted.forward.args.args]
        renaming = _Placed(prefix, weights)
        for parameter, given in zip(parameters, region.inputs, strict=True):
            yield f"{prefix}{parameter} = {self._given(given)}"
        *body, last = (renaming.placed(statement) for statement in fitted.forward.body)
        yield from (ast.unparse(statement) for statement in body)
        assert isinstance(last, ast.Return)
        assert last.value is not None
        several = isinstance(last.value, ast.Tuple)
        parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        if len(parts) != len(region.outputs) or several != (len(region.outputs) > 1):
            raise ComposeError("its plan returns something other than the region's results")
        for name, part in zip(region.outputs, parts, strict=True):
            yield f"n_{name} = {ast.unparse(part)}"
        names = {part.id for s in body for part in ast.walk(s) if isinstance(part, ast.Name)}
        kept = {part.id for one in parts for part in ast.walk(one) if isinstance(part, ast.Name)}
        mine = {f"{prefix}{parameter}" for parameter in parameters}
        own = sorted(name for name in names | kept | mine if name.startswith(prefix))
        if own:
            yield f"{' = '.join(own)} = 0"
        if fitted.prepare is not None:
            self._also_prepare(fitted.prepare, renaming, prefix)

    def _given(self, name: str) -> str:
        """A tensor laid out as in the region's search; that is free where it lies so."""
        return _laid_out(self._name(name), self._nodes[name].out[0])

    def _also_prepare(self, prepare: ast.FunctionDef, renaming: _Placed, prefix: str) -> None:
        *body, last = (renaming.placed(statement) for statement in prepare.body)
        assert isinstance(last, ast.Return)
        assert isinstance(last.value, ast.Dict)
        self._prepare_body += body
        for key, value in zip(last.value.keys, last.value.values, strict=True):
            assert isinstance(key, ast.Constant)
            self._prepared[f"{prefix}{key.value!s}"] = value

    def _last_uses(self, units: Sequence[Node | Region]) -> dict[int, list[str]]:
        """The results that nothing reads behind a unit, by its place."""
        stay = {*self._graph.outputs, *(item.node for item in self._graph.mutations)}
        stay = {self._name(name) for name in stay}
        last: dict[str, int] = {}
        for number, unit in enumerate(units):
            read = unit.inputs if isinstance(unit, Region) else refs(unit)
            if isinstance(unit, Node) and unit.op == "getitem":
                continue
            last |= {self._name(name): number for name in read}
        found: dict[int, list[str]] = {}
        for name, number in last.items():
            if name.startswith("n_") and name not in stay and name.isidentifier():
                found.setdefault(number, []).append(name)
        return found


def _called(node: Node) -> str:
    """The operator's name, that of a view as one that takes any layout."""
    is_shaped = base(node.op) in _SHAPED and not _reads_memory(node)
    return "reshape" if is_shaped else base(node.op)


def _reads_memory(node: Node) -> bool:
    """Whether it takes neighbours in memory for one value, as a view of another type does."""
    return node.op in _OF_NEIGHBOURS


def _laid_out(text: str, spec: TensorSpec) -> str:
    """The tensor in the order of memory that its trace has; contiguous where that has gaps."""
    strides = spec.strides if keeps_layout(spec) else None
    if strides is None:
        return f"{text}.contiguous()"
    order = sorted(range(len(strides)), key=lambda at: (-strides[at], at))
    moved = [at for at in order if spec.shape[at] > 1]
    if moved == sorted(moved):
        return f"{text}.contiguous()"
    back = tuple(order.index(at) for at in range(len(order)))
    return f"{text}.permute({tuple(order)}).contiguous().permute({back})"


class _Placed(ast.NodeTransformer):
    """One place's names instead of a region's own."""

    def __init__(self, prefix: str, weights: Mapping[str, str]) -> None:
        self._prefix, self._weights = prefix, weights

    def placed(self, statement: ast.stmt) -> ast.stmt:
        """A copy of a statement under this place's names."""
        copied = ast.parse(ast.unparse(statement)).body[0]
        found = self.visit(copied)
        assert isinstance(found, ast.stmt)
        return found

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return node if node.id in RESERVED else ast.Name(f"{self._prefix}{node.id}", node.ctx)

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        match node:
            case ast.Subscript(value=ast.Name(id="weights"), slice=ast.Constant(value=str() as at)):
                if at not in self._weights:
                    raise ComposeError(f"its plan reads {at!r}, no weight of the region")
                node.slice = ast.Constant(self._weights[at])
            case ast.Subscript(
                value=ast.Name(id="prepared"), slice=ast.Constant(value=str() as at)
            ):
                node.slice = ast.Constant(f"{self._prefix}{at}")
            case _:
                self.generic_visit(node)
        return node
