"""Prints a candidate: the kernel's text and the plan's text of a program under chosen strategies.

The emitter writes device code and the lines that launch it; everything between (weights,
allocations, library calls, views, returns, buffer updates) is written here.

A candidate of many loops is kept small: loops that are alike (`alike.py`) under equal strategies
are emitted once and launched on other buffers. A file has a bounded number of tunables; beyond that
the loops with the least time have theirs at the first valid values.

What a loop makes of weights alone stands in the plan's `prepare`.

Every allocation of a loop stands directly before the first of its lines that takes it. A device
that has nothing to do waits for the host until the first launch, and not after it: what later
launches alone need is allocated while the device works. Launches keep their order, and so does
whatever is no allocation. Lines of different loops are not mixed: a loop's allocations stand with
the loop already, so they come behind the launches of the loops before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.ir import (
    Buffer,
    Emitted,
    LibraryCall,
    Loop,
    PlanLine,
    Program,
    ProgramNode,
    Strategy,
)
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY, Emitter
from kernelwright.tools.codegen.library.alike import Renaming, on_other_buffers, shape_of
from kernelwright.tools.codegen.library.plan_check import Part, Preparation, check_plan
from kernelwright.tools.codegen.library.prepare import run_in_prepare
from kernelwright.tools.codegen.library.statements import Statement, statement
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import LanguageName, Value

# Allocations that may stand later than they are asked for.
_LATE = frozenset({"empty", "zeros"})


def allocated_late(lines: Iterable[str]) -> Iterator[str]:
    """The plan lines of one loop, allocations as late as the others let them be.

    Among those that one line needs, fills come first: the device fills while the host allocates
    what is left. One that nothing needs stays, at the end.
    """
    waiting: list[Statement] = []
    for one in map(statement, lines):
        # A name that is bound anew, or decides a size, is no longer free to wait.
        named = one.reads.union(one.binds)
        needed = [w for w in waiting if w.binds[0] in named or not w.reads.isdisjoint(one.binds)]
        yield from _fills_first(needed)
        waiting = [one for one in waiting if one not in needed]
        if one.maker in _LATE:
            waiting.append(one)
        else:
            yield one.text
    yield from _fills_first(waiting)


def _fills_first(allocations: list[Statement]) -> list[str]:
    return [one.text for one in sorted(allocations, key=lambda one: one.maker != "zeros")]


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _bound(node: ast.AST) -> frozenset[str]:
    stored = (p for p in ast.walk(node) if isinstance(p, ast.Name))
    return frozenset(part.id for part in stored if isinstance(part.ctx, ast.Store))


# The contract allows 64 in a file; a search over more than this would be blind anyway.
MOST_TUNABLES = 48


def within_budget(
    emitted: Mapping[str, Emitted], order: tuple[str, ...], header: str, language: LanguageName
) -> dict[str, Emitted]:
    """The emitted loops with at most `MOST_TUNABLES` tunables among them.

    `order` names the loops that matter most first: they keep theirs.
    """
    result, left = dict(emitted), MOST_TUNABLES
    for name in order:
        count = len(_tunables(emitted[name].source))
        if count > left:
            result[name] = untuned(emitted[name], header, language)
        else:
            left -= count
    return result


def untuned(emitted: Emitted, header: str, language: LanguageName) -> Emitted:
    """The same kernel with every tunable at its first valid value."""
    source = parse_kernel(f"{header}\n{emitted.source}", language)
    values = {setting.name: str(setting.value) for setting in complete_settings(source)}
    lines = emitted.source.splitlines()
    kept = [line for line in lines if not re.match(r"\s*// (tune|require):", line)]
    return Emitted(
        source=_valued("\n".join(kept), values),
        plan=tuple(_valued(line, values) for line in emitted.plan),
        prepare=tuple(_valued(line, values) for line in emitted.prepare),
        prepared=emitted.prepared,
    )


def _valued(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: values.get(word[0], word[0]), text)


def _tunables(source: str) -> list[str]:
    return re.findall(r"^\s*// tune: (\w+)", source, flags=re.MULTILINE)


class Assembled(Value):
    """The two texts of a candidate."""

    kernel: str
    plan: str


def assemble(
    program: Program, emitter: Emitter, choices: Mapping[str, Strategy], hardware: Hardware
) -> Assembled:
    """Kernel and plan of a program.

    Args:
        program: what lowering made.
        emitter: of the language wanted.
        choices: a strategy for each node by its name; a loop left out takes its first, a call
            left out stays with the library.
        hardware: the device it is written for.

    Raises:
        ValueError: a strategy does not fit its node; as a PlanError, a statement of the plan is
            wrong, which is a bug of whoever made it.
    """
    chosen = {
        loop.name: choices.get(loop.name) or emitter.strategies(loop, hardware)[0]
        for loop in program.loops
    }
    ours = [node for node in program.nodes if _is_ours(node, choices)]
    chosen |= {node.name: choices[node.name] for node in ours if isinstance(node, LibraryCall)}
    firsts = _firsts(ours, chosen)
    emitted = {
        node.name: _emitted(program, node, emitter, chosen[node.name], hardware)
        for node in ours
        if firsts[node.name] is node
    }
    times = {node.name: emitter.predicted_ms(node, chosen[node.name], hardware) for node in ours}
    order = tuple(sorted(emitted, key=lambda name: -times[name]))
    emitted = within_budget(emitted, order, emitter.header(), emitter.language)
    preparers = _preparers(ours, firsts, emitted)
    lines = {
        node.name: _launches(node, firsts[node.name], preparers[node.name], emitted)
        for node in ours
    }
    prepare = [
        _preparation(node, firsts[node.name], emitted[firsts[node.name].name])
        for node in ours
        if preparers[node.name] is node
    ]
    call = _call(program, lines)
    sources = [one.source for one in emitted.values()]
    check_plan(program.parameters, program.weights, prepare, call, sources)
    plan = [*_prepare(program, prepare), *_plan(program, call)]
    return Assembled(kernel=_kernel(ours, emitter, emitted), plan="\n".join(plan) + "\n")


def _is_ours(node: ProgramNode, choices: Mapping[str, Strategy]) -> bool:
    """Whether kernels of ours do it: every loop, and calls that were not left to the library."""
    return isinstance(node, Loop) or choices.get(node.name, LIBRARY).name != LIBRARY.name


def returned(program: Program) -> tuple[str, ...]:
    """What the plan returns, one expression an output."""
    views = dict(program.views)
    return tuple(views.get(name, name) for name in program.returns)


def _firsts(nodes: Sequence[ProgramNode], chosen: Mapping[str, Strategy]) -> dict[str, ProgramNode]:
    """For every node, the first one whose kernel it can use: itself, or an equal one."""
    known: dict[tuple[ProgramNode, Strategy], ProgramNode] = {}
    return {
        node.name: known.setdefault((shape_of(node), chosen[node.name]), node) for node in nodes
    }


def _preparers(
    nodes: Sequence[ProgramNode], firsts: Mapping[str, ProgramNode], emitted: Mapping[str, Emitted]
) -> dict[str, ProgramNode]:
    """For every node, the first one that prepares what its kernels read: equal lines do it."""
    known: dict[tuple[str, ...], ProgramNode] = {}
    return {
        node.name: known.setdefault(
            (first.name, *_prepare_lines(node, first, emitted[first.name])), node
        )
        for node in nodes
        for first in (firsts[node.name],)
    }


def _prepare_lines(node: ProgramNode, first: ProgramNode, emitted: Emitted) -> tuple[str, ...]:
    """The lines that prepare what a node takes, under the names of the first one."""
    lines = emitted.prepare
    lines = lines if first is node else on_other_buffers(lines, first, node)
    return tuple(ast.unparse(ast.parse(line)) for line in lines)


def _launches(
    node: ProgramNode, first: ProgramNode, preparer: ProgramNode, emitted: Mapping[str, Emitted]
) -> tuple[str, ...]:
    found = emitted[first.name]
    lines = found.plan if first is node else on_other_buffers(found.plan, first, node)
    names = found.prepared
    return (*(f'{name} = prepared["{_own(name, preparer, first)}"]' for name in names), *lines)


def _own(name: str, node: ProgramNode, first: ProgramNode) -> str:
    """A node's name for what the kernels that it shares prepare."""
    return node.name + name.removeprefix(first.name)


def _preparation(node: ProgramNode, first: ProgramNode, emitted: Emitted) -> Preparation:
    """What is prepared for a node, under names of its own."""
    trees = [ast.parse(line) for line in _prepare_lines(node, first, emitted)]
    made = {name for tree in trees for name in _bound(tree)}
    renaming = Renaming({name: _own(name, node, first) for name in made})
    own = tuple(ast.unparse(renaming.visit(tree)) for tree in trees)
    return Preparation(own, tuple(_own(name, node, first) for name in emitted.prepared))


def _prepare(program: Program, made: Sequence[Preparation]) -> Iterator[str]:
    """The plan's function that prepares; nothing where nothing is prepared."""
    lines = [line for one in made for line in one.lines]
    if not lines:
        return
    yield "def prepare(weights):"
    used = frozenset[str]().union(*(statement(line).reads for line in lines))
    for name, target in program.weights:
        if name in used:
            yield f'    {name} = weights["{target}"]'
    yield from (f"    {line}" for line in lines)
    prepared = ", ".join(f'"{name}": {name}' for one in made for name in one.prepared)
    yield f"    return {{{prepared}}}"
    yield ""
    yield ""


def _emitted(
    program: Program,
    node: ProgramNode,
    emitter: Emitter,
    strategy: Strategy,
    hardware: Hardware,
) -> Emitted:
    found = emitter.emit(emitter.rewritten(node, strategy), strategy, f"{node.name}_", hardware)
    if not isinstance(node, Loop) or not node.is_prepared:
        return found
    stored = [program.buffer(store.access.buffer) for store in node.stores]
    plain = untuned(found, emitter.header(), emitter.language)
    return run_in_prepare(node, plain, {one.name: _allocation_lines(one) for one in stored})


def _kernel(nodes: Sequence[ProgramNode], emitter: Emitter, emitted: Mapping[str, Emitted]) -> str:
    if not emitted:
        return ""
    # Tunables become macros behind the last include, so every include stands at the top.
    sources = {name: _without_includes(one.source) for name, one in emitted.items()}
    includes = (line for one in emitted.values() for line in _INCLUDES.findall(one.source))
    parts = ["\n".join(dict.fromkeys([emitter.header().rstrip(), *includes]))]
    parts += [f"{described(node)}\n{sources[node.name]}" for node in nodes if node.name in emitted]
    return "\n\n".join(part for part in parts if part) + "\n"


_INCLUDES = re.compile(r"^#include .*$", re.MULTILINE)


def _without_includes(source: str) -> str:
    return _INCLUDES.sub("", source).strip()


def described(node: ProgramNode) -> str:
    """One comment line that tells a person what a node does."""
    if isinstance(node, LibraryCall):
        return f"// {node.name}: {node.family}, {node.line.text}"
    return _described(node)


def _described(loop: Loop) -> str:
    outer = " x ".join(str(axis.size) for axis in loop.outer) or "1"
    inner = " x ".join(str(axis.size) for axis in loop.inner)
    space = f"{outer} rows of {inner}" if inner else f"{outer} elements"
    reads = dict.fromkeys(stmt.access.buffer for stmt in loop.body if stmt.access is not None)
    writes = dict.fromkeys(store.access.buffer for store in loop.stores)
    steps = [stmt.reduce.value for stmt in loop.body if stmt.reduce is not None]
    steps += [f"running {stmt.scan}" for stmt in loop.body if stmt.scan is not None]
    how = f" by {', '.join(steps)}" if steps else ""
    moved = f"{_listed(reads)} -> {_listed(writes)}"
    return f"// {loop.name}: {loop.family} over {space}, {moved}{how}"


def _listed(names: Mapping[str, None]) -> str:
    return ", ".join(names) or "nothing"


def _call(program: Program, launches: Mapping[str, tuple[str, ...]]) -> list[Part]:
    """What a call does once its weights have names, step by step."""
    parts: list[Part] = []
    made = {*program.parameters, *(name for name, _ in program.weights)}
    prepared = {loop.name for loop in program.prepared}
    for step in program.steps:
        node = program.node(step)
        if isinstance(step, PlanLine) and (node is None or node.name not in launches):
            parts.append(Part((step.text,)))
            made |= set(step.makes)
        elif node is not None:
            stored = _stored(program, node)
            new = [buffer for buffer in stored if buffer.name not in made]
            made |= {buffer.name for buffer in new}
            is_prepared = node.name in prepared  # and allocated there
            allocations = [] if is_prepared else [*map(_allocation_lines, new)]
            lines = tuple(allocated_late([*allocations, *launches[node.name]]))
            stores = () if is_prepared else tuple(buffer.name for buffer in stored)
            parts.append(Part(lines, stores, is_kernels=True))
    return [*parts, Part((f"return {_result(program)}",))]


def _plan(program: Program, call: Sequence[Part]) -> Iterator[str]:
    yield f"def forward({', '.join(program.parameters)}):"
    yield from (f'    {name} = weights["{target}"]' for name, target in program.weights)
    yield from (f"    {line}" for part in call for line in part.lines)


def _stored(program: Program, node: ProgramNode) -> Sequence[Buffer]:
    if isinstance(node, LibraryCall):
        return node.results
    names = dict.fromkeys(store.access.buffer for store in node.stores)
    return [program.buffer(name) for name in names]


def _allocation_lines(buffer: Buffer) -> str:
    sizes = ", ".join(map(str, buffer.shape))
    shape = f"({sizes},)" if len(buffer.shape) == 1 else f"({sizes})"
    return f'{buffer.name} = empty({shape}, dtype="{buffer.dtype.value}")'


def _result(program: Program) -> str:
    texts = returned(program)
    if program.output_structure == "tensor" and len(texts) == 1:
        return texts[0]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
