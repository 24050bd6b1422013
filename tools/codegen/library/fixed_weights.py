"""What is made of weights once: which buffers that may be, and plans in which it is not.

A kernel that wants a weight in a layout of its own packs it in the plan's `prepare`, which is
redone when the weight changes, and a loop that only lays one out anew runs there. Only the weight
as the module holds it may be packed so, never what is computed from it: a module's arithmetic is
done in every call.

Not here: who notices the change (`tools.candidates.run`, and an export for itself).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from math import prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, Loop, PlanLine, Program, ProgramNode
from kernelwright.tools.codegen.library.alike import Renaming

_ONCE = "once_"
_SHARE = 0.25  # of the memory of the device


def with_fixed_weights(program: Program, hardware: Hardware) -> Program:
    """The program, whose loops know which buffers hold weights that may be packed once.

    No call changes them, and together they take no more than a share of the device's memory, as
    what is packed of them lies there besides; the smaller ones come first.
    """
    lines = [step for step in program.steps if isinstance(step, PlanLine)]
    written = {name for line in lines for name in line.makes}
    written |= {store.access.buffer for loop in program.loops for store in loop.stores}
    updated = {text for line in lines if line.operator == "update" for text in _words(line.text)}
    fixed = {
        name for name, target in program.weights if name not in written and target not in updated
    }
    fixed = _within(program, fixed, _SHARE * hardware.memory_gib * 2**30)
    steps = tuple(_told(step, fixed) if isinstance(step, Loop) else step for step in program.steps)
    return program.model_copy(update={"steps": steps})


def is_laid_out(node: ProgramNode) -> bool:
    """Whether a loop only puts weights that may be packed once into another layout."""
    if not isinstance(node, Loop) or node.inner or not node.fixed:
        return False
    loads = [stmt for stmt in node.body if stmt.op == "load" and stmt.access and not stmt.args]
    read = {stmt.access.buffer for stmt in loads if stmt.access is not None}
    return (
        len(loads) == len(node.body)
        and read <= {*node.fixed}
        and not any(store.when for store in node.stores)
    )


def laid_out_once(loop: Loop, emitted: Emitted, allocations: Mapping[str, str]) -> Emitted:
    """What is printed for such a loop, launched in `prepare` instead of in every call.

    Args:
        loop: One for which `is_laid_out` holds.
        emitted: What its emitter printed.
        allocations: The line that allocates each buffer that it stores.
    """
    kept = {name: f"{loop.name}_laid_out_{at}" for at, name in enumerate(allocations)}
    renaming = Renaming(kept)
    lines = [*allocations.values(), *emitted.plan]
    once = tuple(ast.unparse(renaming.visit(ast.parse(line))) for line in lines)
    plan = tuple(f"{name} = {made}" for name, made in kept.items())
    return emitted.model_copy(
        update={
            "plan": plan,
            "once": (*emitted.once, *once),
            "kept": (*emitted.kept, *kept.values()),
        }
    )


def _within(program: Program, names: set[str], most_bytes: float) -> set[str]:
    """Those that fit together, the smallest first."""
    sizes = {one.name: prod(one.shape) * one.dtype.itemsize_bytes for one in program.buffers}
    kept, taken = set[str](), 0
    for name in sorted(names & sizes.keys(), key=lambda name: (sizes[name], name)):
        taken += sizes[name]
        if taken > most_bytes:
            break
        kept.add(name)
    return kept


def _told(loop: Loop, fixed: set[str]) -> Loop:
    read = dict.fromkeys(stmt.access.buffer for stmt in loop.body if stmt.access is not None)
    return loop.model_copy(update={"fixed": tuple(name for name in read if name in fixed)})


def _words(line: str) -> set[str]:
    """The texts in quotes of a plan's line."""
    constants = (node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def without_prepare(plan: str) -> str:
    """The plan, in which every call does what `prepare` did once.

    Raises:
        ValueError: `prepare` does not end in its only return, of a dictionary that it writes out.
    """
    tree = ast.parse(plan)
    functions = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    prepare = next((item for item in functions if item.name == "prepare"), None)
    if prepare is None:
        return plan
    stored = (part for part in ast.walk(prepare) if isinstance(part, ast.Name))
    apart = _Apart({part.id for part in stored if isinstance(part.ctx, ast.Store)})
    *body, last = [apart.visit(statement) for statement in prepare.body]
    returns = [part for part in ast.walk(prepare) if isinstance(part, ast.Return)]
    if returns != [last] or not isinstance(last.value, ast.Dict):
        raise ValueError(
            "prepare does not end in its only return, of a dictionary that it writes out"
        )
    keys = [key.value for key in last.value.keys if isinstance(key, ast.Constant)]
    instead = _Instead(dict(zip(keys, last.value.values, strict=True)))
    others = [item for item in functions if item is not prepare]
    for function in filter(_reads_prepared, others):
        function.body = [*body, *instead.visit(function).body]
    tree.body = [*others]
    return "\n\n\n".join(map(ast.unparse, ast.fix_missing_locations(tree).body)) + "\n"


def _reads_prepared(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "prepared" for n in ast.walk(function))


class _Apart(ast.NodeTransformer):
    """The names that `prepare` makes, as none that a forward makes."""

    def __init__(self, made: set[str]) -> None:
        self._made = made

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(f"{_ONCE}{node.id}", node.ctx) if node.id in self._made else node


class _Instead(ast.NodeTransformer):
    """What was prepared, by what it was prepared as."""

    def __init__(self, made: dict[object, ast.expr]) -> None:
        self._made = made

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(value=ast.Name(id="prepared"), slice=ast.Constant(value=name)):
                return self._made[name]
        self.generic_visit(node)
        return node
