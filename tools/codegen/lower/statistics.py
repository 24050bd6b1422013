"""A norm behind a product reads what was made once: its statistics are taken where it is made.

A loop that reduces what a product stores (the mean and the squared distances of a norm, a sum of
squares) becomes two. The product's kernel takes the reduction of every tile as it stores it, and
joins what tiles leave when all are done: a `statistic`. What the loop computes of it a row (the
inverse deviation, running averages) is computed there, once. The rest reads these few values and
the product's results, each of them once. Where nothing is left to read them, they are never stored.

Statistics are of what a reader of memory has: of results in a half type, rounded to it.

Not here: second statistics that wait for the first (a softmax), several of one product, positions
of extrema, and rows of which only some are the reader's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.ir import (
    Access,
    Buffer,
    Loop,
    PlanLine,
    Program,
    ReduceKind,
    Stmt,
    Store,
    Stride,
    results,
)
from kernelwright.tools.codegen.ir.contraction import PRODUCT, contraction_of
from kernelwright.tools.codegen.ir.loops import loop_label, without_unread
from kernelwright.tools.codegen.lower.epilogues import (
    Joining,
    reader_places,
    reads,
    split_at,
    without_unused,
)
from kernelwright.tools.types import DType

_KINDS = frozenset({ReduceKind.MOMENTS, ReduceKind.SUM, ReduceKind.MAX, ReduceKind.MIN})
_ROUNDED = (DType.FLOAT16, DType.BFLOAT16)
Takes = Callable[[Loop], bool]


def with_statistics(program: Program, takes: Takes) -> Program | None:
    """The program with statistics taken by products; None where there are none to take.

    Args:
        program: What lowering made, its products as loops.
        takes: Whether there are kernels for a loop.
    """
    found = None
    for name in [loop.name for loop in program.loops if loop.family == PRODUCT]:
        current = found or program
        made = next(loop for loop in current.loops if loop.name == name)
        changed = (_taken_by(current, made, reader, takes) for reader in _readers(current, made))
        found = next((one for one in changed if one is not None), found)
    return found


def _readers(program: Program, made: Loop) -> list[Loop]:
    """The loops that reduce what a product stores."""
    if len(made.stores) != 1 or contraction_of(made) is None:
        return []
    return [loop for loop in program.loops if loop.inner and _loads(loop, made)]


def _loads(reader: Loop, made: Loop) -> list[Stmt]:
    buffer = made.stores[0].access.buffer
    return [s for s in reader.body if s.access is not None and s.access.buffer == buffer]


def _taken_by(program: Program, made: Loop, reader: Loop, takes: Takes) -> Program | None:
    parts = _parted(reader, made)
    if parts is None:
        return None
    buffers = _buffers(program, parts)
    counting = _counting(made, parts, buffers)
    if counting is None or _is_early(program, made, counting) or not takes(counting):
        return None
    rest = _rest(parts, buffers)
    if not rest and _is_alone(program, made, reader):
        counting = _unstored(counting, made)
        if not takes(counting):
            return None
    changed = {made.name: [counting], reader.name: rest}
    steps = [n for one in program.steps for n in changed.get(getattr(one, "name", ""), [one])]
    every = (*program.buffers, *buffers.values())
    return without_unused(program.model_copy(update={"steps": tuple(steps), "buffers": every}))


def _is_alone(program: Program, made: Loop, reader: Loop) -> bool:
    """Whether nothing else needs what the product stores."""
    buffer = made.stores[0].access.buffer
    others = [step for step in program.steps if step is not made and step is not reader]
    is_needed = buffer in program.returns or any(buffer in reads(step) for step in others)
    return not is_needed and program.buffer(buffer).role == "temporary"


def _unstored(counting: Loop, made: Loop) -> Loop:
    """The product that stores nothing but what it makes of statistics."""
    buffer = made.stores[0].access.buffer
    stores = tuple(store for store in counting.stores if store.access.buffer != buffer)
    return without_unread(counting.model_copy(update={"stores": stores}))


def _is_early(program: Program, made: Loop, counting: Loop) -> bool:
    """Whether it would read what is made behind the product."""
    steps = program.steps[program.steps.index(made) :]
    later = {store.access.buffer for s in steps if isinstance(s, Loop) for store in s.stores}
    later |= {name for s in steps if isinstance(s, PlanLine) for name in s.makes}
    return any(stmt.access is not None and stmt.access.buffer in later for stmt in counting.body)


@dataclass(frozen=True)
class _Parts:
    """A reader taken apart: a reduction of a product's results, and what follows from it alone.

    `handed` are values of a row that the rest of the loop reads, `stored` what is stored of a row.
    """

    reader: Loop
    reduction: Stmt
    handed: tuple[str, ...]
    stored: tuple[Store, ...]


def _parted(reader: Loop, made: Loop) -> _Parts | None:
    """The reader's parts; None where it has another reduction as early, or none."""
    levels, passes = reader.levels(), reader.passes()
    first = [s for s in reader.body if s.op == "reduce" and passes[s.name] == 1]
    if len(first) != 1 or any(s.op in ("scan", "fold") for s in reader.body):
        return None
    (reduction,) = first
    loads = {load.name for load in _loads(reader, made)}
    reads = loads & {s.name for s in _behind(reader, [reduction.args[0]])}
    if reduction.reduce not in _KINDS or reduction.dtype is not DType.FLOAT32 or not reads:
        return None
    early = {
        name
        for name in levels
        if levels[name] == "row" and passes[name] == 1 and _depends(reader, name, reduction)
    }
    handed = {
        arg for stmt in reader.body for arg in stmt.args if arg in early and stmt.name not in early
    }
    stored = tuple(store for store in reader.stores if store.value in early)
    others = [store for store in reader.stores if store not in stored]
    if any(levels[store.value] == "row" and passes[store.value] == 0 for store in others):
        return None  # nothing of it belongs here
    order = [name for stmt in reader.body for name in results(stmt) if name in handed]
    return _Parts(reader, reduction, tuple(order), stored)


def _behind(loop: Loop, names: Iterable[str]) -> list[Stmt]:
    """The statements that values are computed from, in order."""
    wanted, found = {*names}, list[Stmt]()
    for stmt in reversed(loop.body):
        if wanted & {*results(stmt)}:
            found.append(stmt)
            wanted |= {*stmt.args}
            wanted |= {one.by for one in stmt.access.strides} if stmt.access is not None else set()
    return found[::-1]


def _depends(loop: Loop, name: str, on: Stmt) -> bool:
    return on in _behind(loop, [name])


def _buffers(program: Program, parts: _Parts) -> Mapping[str, Buffer]:
    """A buffer for each value that the rest reads, one element a row."""
    taken = {buffer.name for buffer in program.buffers}
    shape = tuple(axis.size for axis in parts.reader.outer) or (1,)
    made: dict[str, Buffer] = {}
    for name in parts.handed:
        wanted = f"{parts.reader.name.lower()}_{name}"
        while wanted in taken:
            wanted += "_"
        taken.add(wanted)
        made[name] = Buffer(name=wanted, shape=shape, dtype=_dtype(parts, name), role="temporary")
    return made


def _dtype(parts: _Parts, name: str) -> DType:
    return parts.reader.stmt(name).dtype


def _row(parts: _Parts, buffer: Buffer) -> Access:
    """A row's element of a buffer."""
    outer = parts.reader.outer
    strides = tuple(
        Stride(by=axis.name, step=prod(one.size for one in outer[at + 1 :]))
        for at, axis in enumerate(outer)
    )
    return Access(buffer=buffer.name, dtype=buffer.dtype, strides=strides)


def _counting(made: Loop, parts: _Parts, buffers: Mapping[str, Buffer]) -> Loop | None:
    """The product's loop that takes the statistics too; None where it cannot."""
    reader, (store,) = parts.reader, made.stores
    loads = _loads(reader, made)
    access = loads[0].access
    if access is None or any(load.access != access or load.args for load in loads):
        return None
    if any(load.dtype is not made.stmt(store.value).dtype for load in loads):
        return None
    made = split_at(made, {one.step for one in access.strides})
    places = reader_places(made, reader, made.stores[0].access, access)
    if places is None or any(places[axis.name].is_cut for axis in reader.outer):
        return None
    along = tuple(term.by for axis in reader.inner for term in places[axis.name].terms)
    if not along:
        return None
    joining = Joining(made, reader, places, store.value, prefix="all")
    joining.body = [*made.body]
    if store.access.dtype in _ROUNDED:
        rounded = made.stmt(store.value).model_copy(
            update={"name": "all_rounded", "op": f"to_{store.access.dtype.value}",
                    "args": (store.value,), "access": None, "value": None}
        )  # fmt: skip
        joining.body.append(rounded)
        joining.value = rounded.name
    cut = [axis.name for axis in reader.inner if places[axis.name].is_cut]
    inside = joining.within(cut, store.when)
    return _with_statements(joining, parts, buffers, inside, along)


def _with_statements(
    joining: Joining,
    parts: _Parts,
    buffers: Mapping[str, Buffer],
    inside: str,
    along: tuple[str, ...],
) -> Loop:
    reader, reduction = parts.reader, parts.reduction
    wanted = [*parts.handed, *(store.value for store in parts.stored)]
    before = _behind(reader, reduction.args)
    for stmt in before:
        joining.take(stmt, inside, along)
    args = (joining.names[reduction.args[0]], *[inside] * bool(inside))
    joining.keep(reduction, {"op": "statistic", "along": along, "args": args})
    for name in results(reduction):
        joining.names[name] = f"{joining.prefix}_{name}"
    for stmt in _behind(reader, wanted):
        if stmt not in before and stmt is not reduction:
            joining.take(stmt, "", along)
    stores = [
        *joining.made.stores,
        *(_moved(joining, _row(parts, buffers[name]), name) for name in parts.handed),
        *(_moved(joining, store.access, store.value) for store in parts.stored),
    ]
    whole = joining.made.model_copy(update={"body": tuple(joining.body), "stores": tuple(stores)})
    return without_unread(whole)


def _moved(joining: Joining, access: Access, value: str) -> Store:
    return Store(access=joining.moved(access), value=joining.names[value])


def _rest(parts: _Parts, buffers: Mapping[str, Buffer]) -> list[Loop]:
    """What is left of the reader, with what it is handed read from memory; none, or one loop."""
    reader = parts.reader
    stores = tuple(store for store in reader.stores if store not in parts.stored)
    if not stores:
        return []
    handed = tuple(
        Stmt(name=name, op="load", dtype=_dtype(parts, name), access=_row(parts, buffers[name]))
        for name in parts.handed
    )
    body = (*handed, *(s for s in reader.body if not {*results(s)} & {*parts.handed}))
    left = without_unread(reader.model_copy(update={"body": body, "stores": stores}))
    if not any(stmt.op == "reduce" for stmt in left.body):
        left = left.model_copy(update={"outer": (*left.outer, *left.inner), "inner": ()})
    return [left.model_copy(update={"family": loop_label(left)})]
