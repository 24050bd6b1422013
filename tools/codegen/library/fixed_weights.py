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
from kernelwright.tools.codegen.ir import Emitted, Loop, PlanLine, Program
from kernelwright.tools.codegen.ir.roofline import CONVOLUTION
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
    steps = tuple(
        _told(program, step, fixed) if isinstance(step, Loop) else step for step in program.steps
    )
    return program.model_copy(update={"steps": steps})


def _is_laid_out(program: Program, loop: Loop, fixed: set[str]) -> bool:
    """Whether all that a loop does is to put whole weights into another layout for this call.

    What it stores is nobody else's: no other step writes it (as other pieces of a concatenation
    are), and it does not leave the forward, where a caller may change it.
    """
    loads = [stmt for stmt in loop.body if stmt.op == "load" and not stmt.args]
    if loop.inner or len(loads) != len(loop.body) or any(store.when for store in loop.stores):
        return False
    by_name = {stmt.name: stmt.access for stmt in loads}
    names, axes = _kept_here(program, loop), {axis.name for axis in loop.outer}
    for store in loop.stores:
        read, made = by_name.get(store.value), program.buffer(store.access.buffer)
        if read is None or read.buffer not in fixed or made.name not in names:
            return False
        given = program.buffer(read.buffer)
        is_whole = prod(given.shape) == prod(made.shape) == loop.rows
        if not is_whole or {read.dtype, given.dtype, store.access.dtype} != {made.dtype}:
            return False
        if {stride.by for stride in read.strides} - axes:
            return False
    return True


def _kept_here(program: Program, loop: Loop) -> set[str]:
    """Temporaries that this loop alone writes, and that only loops and convolutions read.

    Any other line may hand on a view of it, which may be returned, or keep it in a buffer.
    """
    lines = [step for step in program.steps if isinstance(step, PlanLine)]
    stores = [store for one in program.loops if one is not loop for store in one.stores]
    others = {store.access.buffer for store in stores}
    others |= {name for line in lines for name in line.makes}
    others |= {name for line in lines if line.operator != CONVOLUTION for name in line.uses}
    others |= {*program.returns, *(name for name, _ in program.views)}
    return {one.name for one in program.buffers if one.role == "temporary"} - others


def laid_out_once(loop: Loop, emitted: Emitted, allocations: Mapping[str, str]) -> Emitted:
    """What is printed for such a loop, launched in `prepare` instead of in every call.

    Args:
        loop: One that is done `once`.
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


def _told(program: Program, loop: Loop, fixed: set[str]) -> Loop:
    read = dict.fromkeys(stmt.access.buffer for stmt in loop.body if stmt.access is not None)
    told = {"fixed": tuple(name for name in read if name in fixed)}
    return loop.model_copy(update=told | {"once": _is_laid_out(program, loop, fixed)})


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
