"""The last look at a nest: degenerate reductions go, axes are ordered and merged.

Axes end in the order of the traffic: the last outer and the last inner axis are the ones along
which most bytes lie next to each other. Neighbouring axes that every address walks as one are
one, so that loops come out with few axes. What addresses and nests move is counted by their own
positions: no cache and no sector is in it.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations
from math import prod

from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.expressions import Address, Affine, Expr, Term
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write, affine, where_of
from kernelwright.tools.codegen.lower.nests.positions import guarded
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.types import DType


def fastest(where: Address) -> str | None:
    """The axis along which an address moves least; None where it stays."""
    axes = [(abs(term.step), term.by) for term in where.terms if isinstance(term.by, str)]
    return min(axes)[1] if axes else None


def footprint(where: Address) -> int:
    """Bytes at distinct positions of an address."""
    return prod(term.size for term in where.terms) * where.dtype.itemsize_bytes


def lies_mixed(nest: Nest) -> bool:
    """Whether matrices beside a product's factors lie along different axes.

    A tile's results are stored, or a residual read, an element a sector then.
    """
    beside = [where for where in map(where_of, nest.loads) if not where.axes & set(nest.inner)]
    every = [*beside, *(write.address for write in nest.writes)]
    largest = max(map(footprint, every))
    return len({fastest(one) for one in every if 2 * footprint(one) >= largest}) > 1


def nest_read_bytes(context: Context, nest: Nest) -> int:
    """Bytes that a nest must read, each element counted once."""
    read: dict[str, int] = {}
    for load in nest.loads:
        where = where_of(load)
        buffer = context.buffers[where.buffer]
        size = prod(buffer.shape) * buffer.dtype.itemsize_bytes
        read[where.buffer] = min(size, read.get(where.buffer, 0) + footprint(where))
    return sum(read.values())


def tidy(ops: Ops, nest: Nest) -> list[Nest]:
    """The nest as a loop should look; several where what a row held together is gone."""
    nest = _without_idle_reductions(ops, nest)
    return [_merged(ops, _in_order(guarded(ops, one))) for one in _without_idle_axes(nest)]


def _without_idle_reductions(ops: Ops, nest: Nest) -> Nest:
    """Reductions of what does not vary along the row, in closed form."""
    while True:
        varies, inner = nest.dependences(), frozenset(nest.inner)
        new = {
            expr: closed
            for expr in nest.exprs
            if expr.op in ("reduce", "scan", "second")
            and not varies[_reduced(expr)] & inner
            and (closed := _closed(ops, nest, expr)) is not None
        }
        if not new:
            return nest
        values = ops.rebuild([write.value for write in nest.writes], new.get)
        writes = (type(w)(w.address, v) for w, v in zip(nest.writes, values, strict=True))
        nest = Nest(nest.outer, nest.inner, tuple(writes))


def _reduced(expr: Expr) -> Expr:
    return expr.args[0].args[0] if expr.op == "second" else expr.args[0]


def _closed(ops: Ops, nest: Nest, expr: Expr) -> Expr | None:
    x = _reduced(expr)
    if expr.op == "second":
        return ops("sub", x, x)
    count = prod(ops.pool.sizes[axis] for axis in nest.inner)
    if expr.op == "scan":
        return _repeated(ops, expr.word, x, ops("add", _row_position(ops, nest), 1))
    if expr.word in ("argmax", "argmin"):
        return ops.pool.const(0, DType.INT64)
    return _repeated(ops, expr.word, x, ops.pool.const(count, DType.INT64))


def _repeated(ops: Ops, kind: str, x: Expr, count: Expr) -> Expr:
    if kind == "sum":
        return ops("mul", x, ops.cast(count, x.dtype))
    return ops("pow", x, ops.cast(count, x.dtype)) if kind == "prod" else x


def _row_position(ops: Ops, nest: Nest) -> Expr:
    terms, step = [], 1
    for axis in reversed(nest.inner):
        terms.append(Term(axis, step, ops.pool.sizes[axis]))
        step *= ops.pool.sizes[axis]
    return affine(ops, Affine(0, tuple(terms)))


def _without_idle_axes(nest: Nest) -> list[Nest]:
    """Inner axes over which nothing is reduced or scanned are outer axes, or none at all.

    What was written once a row and what was written along it are then nests of their own.
    """
    if any(expr.op in ("reduce", "scan") for expr in nest.exprs):
        return [nest]
    inner = frozenset(nest.inner)
    apart: dict[frozenset[str], list[Write]] = {}
    for write in nest.writes:
        apart.setdefault(write.address.axes & inner, []).append(write)
    return [
        Nest(nest.outer + tuple(a for a in nest.inner if a in used), (), tuple(writes))
        for used, writes in apart.items()
    ]


def addresses(nest: Nest) -> list[Address]:
    """Every address of the nest, the writes' first."""
    return [write.address for write in nest.writes] + [where_of(load) for load in nest.loads]


def _in_order(nest: Nest) -> Nest:
    primary = _primary(nest)
    if primary is None:
        return nest

    def outermost_first(axis: str) -> tuple[int, int]:
        step = abs(primary.step(axis))
        return (1, -step) if step else (0, 0)

    outer = tuple(sorted(nest.outer, key=outermost_first))
    inner = nest.inner if nest.ordered else tuple(sorted(nest.inner, key=outermost_first))
    return Nest(outer, inner, nest.writes)


def _primary(nest: Nest) -> Address | None:
    """The address whose order is followed: the largest of those that agree on the fastest axis."""
    candidates = [where for where in addresses(nest) if where.axes]
    if not candidates:
        return None
    votes: Counter[str] = Counter()
    for where in candidates:
        votes[_fastest(where)] += _size(where)
    winner = votes.most_common(1)[0][0]
    return max((w for w in candidates if _fastest(w) == winner), key=_size)


def _fastest(where: Address) -> str:
    steps = [term for term in where.terms if isinstance(term.by, str)]
    return str(min(steps, key=lambda term: abs(term.step)).by)


def _size(where: Address) -> int:
    axes = prod(term.size for term in where.terms if isinstance(term.by, str))
    return axes * where.dtype.itemsize_bytes


def _merged(ops: Ops, nest: Nest) -> Nest:
    while (pair := _mergeable(ops, nest)) is not None:
        nest = _merge(ops, nest, *pair)
    return nest


def _mergeable(ops: Ops, nest: Nest) -> tuple[str, str] | None:
    counted = {expr.word for expr in nest.exprs if expr.op == "index"}
    every = addresses(nest)
    for axes in (nest.outer, nest.inner):
        free = [axis for axis in axes if axis not in counted]
        if axes == nest.inner and nest.ordered:
            pairs = [(a, b) for a, b in pairwise(axes) if {a, b} <= set(free)]
        else:
            pairs = list(permutations(free, 2))
        for high, low in pairs:
            size = ops.pool.sizes[low]
            if all(where.step(high) == where.step(low) * size for where in every):
                return high, low
    return None


def _merge(ops: Ops, nest: Nest, high: str, low: str) -> Nest:
    """Lets `low` run over both: where it goes on past its end is where `high` steps."""
    both = ops.pool.sizes[high] * ops.pool.sizes[low]
    name = ops.pool.axis(both)
    at = {high: Affine(0), low: Affine(0, (Term(name, 1, both),))}
    outer = tuple(name if axis == low else axis for axis in nest.outer if axis != high)
    inner = tuple(name if axis == low else axis for axis in nest.inner if axis != high)
    return nest.placed(ops, at, outer, inner)
