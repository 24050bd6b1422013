"""What a plan prepares: its function `prepare`, which is run once, and again when weights change.

A kernel that wants a weight in a layout of its own packs it there (`Emitted.prepare`), and a loop
that only lays one out anew runs there as a whole (`Program.prepared`). Only the weight as the
module holds it may be prepared (`Loop.preparable`), never what is computed from it: a module's
arithmetic is done in every call. Where a plan has no `prepare`, every call does what that would.

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

_PREFIX = "once_"
_SHARE = 0.25  # of the memory of the device


def with_prepared_weights(program: Program, hardware: Hardware) -> Program:
    """The program, whose loops know what is preparable, and which of them are prepared as a whole.

    No call changes such weights, and together they take no more than a share of the device's
    memory, as what is prepared of them lies there besides; the smaller ones come first.
    """
    lines = [step for step in program.steps if isinstance(step, PlanLine)]
    written = {name for line in lines for name in line.makes}
    written |= {store.access.buffer for loop in program.loops for store in loop.stores}
    updated = {text for line in lines if line.operator == "update" for text in _words(line.text)}
    preparable = {
        name for name, target in program.weights if name not in written and target not in updated
    }
    preparable = _within(program, preparable, _SHARE * hardware.memory_gib * 2**30)
    steps = tuple(
        _marked(program, step, preparable) if isinstance(step, Loop) else step
        for step in program.steps
    )
    return program.model_copy(update={"steps": steps})


def _lays_out_weights(program: Program, loop: Loop, preparable: set[str]) -> bool:
    """Whether all that a loop does is to put whole weights into another layout for this call.

    What it stores is nobody else's: no other step writes it (as other pieces of a concatenation
    are), and it does not leave the forward, where a caller may change it.
    """
    loads = [stmt for stmt in loop.body if stmt.op == "load" and not stmt.args]
    if loop.inner or len(loads) != len(loop.body) or any(store.when for store in loop.stores):
        return False
    by_name = {stmt.name: stmt.access for stmt in loads}
    names, axes = _own_temporaries(program, loop), {axis.name for axis in loop.outer}
    for store in loop.stores:
        read, made = by_name.get(store.value), program.buffer(store.access.buffer)
        if read is None or read.buffer not in preparable or made.name not in names:
            return False
        given = program.buffer(read.buffer)
        is_whole = prod(given.shape) == prod(made.shape) == loop.rows
        if not is_whole or {read.dtype, given.dtype, store.access.dtype} != {made.dtype}:
            return False
        if {stride.by for stride in read.strides} - axes:
            return False
    return True


def _own_temporaries(program: Program, loop: Loop) -> set[str]:
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


def run_in_prepare(loop: Loop, emitted: Emitted, allocations: Mapping[str, str]) -> Emitted:
    """What is printed for a loop, launched in `prepare` instead of in every call.

    Args:
        loop: One that `is_prepared`.
        emitted: What its emitter printed.
        allocations: The line that allocates each buffer that it stores.
    """
    prepared = {name: f"{loop.name}_laid_out_{at}" for at, name in enumerate(allocations)}
    renaming = Renaming(prepared)
    lines = [*allocations.values(), *emitted.plan]
    prepare = tuple(ast.unparse(renaming.visit(ast.parse(line))) for line in lines)
    plan = tuple(f"{name} = {made}" for name, made in prepared.items())
    return emitted.model_copy(
        update={
            "plan": plan,
            "prepare": (*emitted.prepare, *prepare),
            "prepared": (*emitted.prepared, *prepared.values()),
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


def _marked(program: Program, loop: Loop, preparable: set[str]) -> Loop:
    read = dict.fromkeys(stmt.access.buffer for stmt in loop.body if stmt.access is not None)
    return loop.model_copy(
        update={
            "preparable": tuple(name for name in read if name in preparable),
            "is_prepared": _lays_out_weights(program, loop, preparable),
        }
    )


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
        return ast.Name(f"{_PREFIX}{node.id}", node.ctx) if node.id in self._made else node


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
