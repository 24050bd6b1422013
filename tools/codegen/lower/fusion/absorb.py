"""Absorbing a reduction: what a window reads of normalised rows is computed where it is read.

A pool over the output of a layer norm or a softmax needs the statistics of the few rows that its
window touches. Where windows share nothing, each row belongs to one window: the reader then takes
the rows' reductions into its own nest, several at once, and their tensor is read once instead of
twice. An inner axis of the rows becomes one of the reader's, `times` positions of it for one of
the reader's where the window also covers the row's direction; partial reductions join exactly as
their kind allows.

Not here: scans, positions of extrema, rows that several windows need, and axes that no reader has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from kernelwright.tools.codegen.lower.fusion.inline import (
    Split,
    digits,
    positions,
    replaced,
    same_load,
)
from kernelwright.tools.codegen.lower.nests.expressions import NARROW, Affine, Expr, Term, reachable
from kernelwright.tools.codegen.lower.nests.nest import Nest, substitute, where_of
from kernelwright.tools.codegen.lower.nests.simplify import Ops

_JOINED = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum",
    "any": "logical_or", "all": "logical_and",
}  # fmt: skip
# Positions of a row that one position of the reader stands for, at most.
_MOST_TIMES = 16


@dataclass(frozen=True)
class Partner:
    """Position `times` * `axis` + k of a row's axis, for every k below `times`."""

    axis: str
    times: int


def absorbed(ops: Ops, reader: Nest, producer: Nest) -> Nest | None:
    """The reader without its reads of what the producer makes; None where it cannot be.

    Of a reader that would compute a row for several windows nothing is taken.
    """
    if not _absorbable(producer):
        return None
    rows: set[tuple[Affine, ...]] = set()
    while (load := _next(reader, producer)) is not None:
        found = positions(where_of(load), producer.writes[0].address)
        if isinstance(found, Split):
            divided = reader.split(ops, found.axis, found.low)
            if same_load(ops, reader, divided, load) is None:
                return None
            reader = divided
            continue
        changed = None if found is None else _without(ops, reader, load, producer, found)
        if found is None or changed is None:
            return None
        rows.add(tuple(found[axis] for axis in producer.outer if axis in found))
        reader = changed
    sizes = ops.pool.sizes
    computed = len(rows) * prod(sizes[axis] for axis in reader.outer)
    return reader if computed <= prod(sizes[axis] for axis in producer.outer) else None


def _absorbable(producer: Nest) -> bool:
    (write, *others) = producer.writes
    plain = not others and producer.inner and not producer.ordered
    direct = not any(load.parents for load in producer.loads)
    return (
        bool(plain)
        and direct
        and write.address.dtype not in NARROW
        and digits(write.address) is not None
    )


def _next(reader: Nest, producer: Nest) -> Expr | None:
    made = producer.writes[0].address.buffer
    return next((load for load in reader.loads if where_of(load).buffer == made), None)


def _without(
    ops: Ops, reader: Nest, load: Expr, producer: Nest, at: Mapping[str, Affine]
) -> Nest | None:
    """The reader with one of those reads computed."""
    partners = _partners(ops, reader, producer, at)
    if partners is None:
        return None
    inner = tuple(dict.fromkeys(partner.axis for partner in partners.values()))
    if reader.inner and set(reader.inner) != set(inner):
        return None
    turns = {axis: at[axis].offset if axis in at else 0 for axis in partners}
    value = _Rows(ops, producer, at, partners, inner).value(turns)
    outer = tuple(axis for axis in reader.axes if axis not in inner)
    changed = replaced(ops, reader, {load: ops.cast(value, load.dtype)})
    return Nest(outer, reader.inner or inner, changed.writes)


def _partners(
    ops: Ops, reader: Nest, producer: Nest, at: Mapping[str, Affine]
) -> dict[str, Partner] | None:
    """A reader's axis for each inner axis of the producer; None where one has none."""
    found: dict[str, Partner] = {}
    for axis in producer.inner:
        partner = (
            _named(ops, axis, at[axis]) if axis in at else _likely(ops, axis, reader, producer)
        )
        taken = {one.axis for one in found.values()}
        if partner is None or partner.axis in taken or partner.times > _MOST_TIMES:
            return None
        found[axis] = partner
    return found


def _named(ops: Ops, axis: str, place: Affine) -> Partner | None:
    """The partner of an axis along which the producer writes."""
    if len(place.terms) != 1:
        return None
    (term,) = place.terms
    if not isinstance(term.by, str):
        return None
    whole = term.step > 0 and term.step * ops.pool.sizes[term.by] == ops.pool.sizes[axis]
    return Partner(term.by, term.step) if whole and 0 <= place.offset < term.step else None


def _likely(ops: Ops, axis: str, reader: Nest, producer: Nest) -> Partner | None:
    """The partner of an axis that is only reduced: what walks the same tensor as it does.

    Any axis whose size divides this one's would be right; this one reads what the reader reads.
    """
    size = ops.pool.sizes[axis]
    for load in producer.loads:
        step = where_of(load).step(axis)
        for mine in reader.loads if step else ():
            if where_of(mine).buffer != where_of(load).buffer:
                continue
            for name in where_of(mine).axes:
                times, rest = divmod(where_of(mine).step(name), step)
                if times > 0 and not rest and times * ops.pool.sizes[name] == size:
                    return Partner(name, times)
    return None


class _Rows:
    """What a producer computes for the rows that one read needs, over the reader's axes."""

    def __init__(
        self,
        ops: Ops,
        producer: Nest,
        at: Mapping[str, Affine],
        partners: Mapping[str, Partner],
        inner: Sequence[str],
    ) -> None:
        self._ops, self._producer, self._partners = ops, producer, partners
        self._at = {axis: place for axis, place in at.items() if axis not in partners}
        self._count = prod(ops.pool.sizes[axis] for axis in inner)

    def value(self, turns: Mapping[str, int]) -> Expr:
        """The value written where each inner axis is at one of its partner's positions."""
        every = [dict(zip(self._partners, each, strict=True)) for each in self._turns()]
        roots = [self._producer.writes[0].value]
        new: list[dict[Expr, Expr]] = [{} for _ in every]
        for expr in reachable(roots):
            if expr.op == "reduce":
                self._reduced(expr, new)
            elif expr.op != "second":
                for known, turn in zip(new, every, strict=True):
                    known[expr] = self._placed(expr, known, turn)
        return new[every.index(dict(turns))][roots[0]]

    def _turns(self) -> list[tuple[int, ...]]:
        return list(product(*(range(partner.times) for partner in self._partners.values())))

    def _placed(self, expr: Expr, known: Mapping[Expr, Expr], turn: Mapping[str, int]) -> Expr:
        """One expression whose arguments are placed already, at one position of the row."""
        if expr.op in ("load", "index"):
            sizes = self._ops.pool.sizes
            at = dict(self._at)
            for axis, partner in self._partners.items():
                term = Term(partner.axis, partner.times, sizes[partner.axis])
                at[axis] = Affine(turn[axis], (term,))
            return substitute(self._ops, [expr], at)[0]
        if not expr.args:
            return expr
        args = tuple(known[arg] for arg in expr.args)
        pool = self._ops.pool
        return self._ops.remake(
            pool.make(expr.op, expr.dtype, args, value=expr.value, word=expr.word)
        )

    def _reduced(self, expr: Expr, new: Sequence[dict[Expr, Expr]]) -> None:
        """A reduction over the row, the same at all of its positions."""
        args = [known[expr.args[0]] for known in new]
        pool, ops = self._ops.pool, self._ops
        if expr.word == "moments":
            mean, spread = self._moments(args)
            second = pool.make("second", expr.dtype, (expr,))
            for known in new:
                known[expr], known[second] = mean, spread
            return
        while len(args) > 1:
            pairs = [args[i : i + 2] for i in range(0, len(args), 2)]
            args = [ops(_JOINED[expr.word], *p) if len(p) == 2 else p[0] for p in pairs]
        for known in new:
            known[expr] = pool.make("reduce", expr.dtype, (args[0],), word=expr.word)

    def _moments(self, args: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Mean and squared distances of rows that lie in several interleaved parts."""
        ops, pool = self._ops, self._ops.pool
        means = [pool.make("reduce", arg.dtype, (arg,), word="moments") for arg in args]
        spreads = [pool.make("second", mean.dtype, (mean,)) for mean in means]
        if len(means) == 1:
            return means[0], spreads[0]
        mean = ops("mul", _sum(ops, means), 1.0 / len(means))
        apart = [ops("square", ops("sub", one, mean)) for one in means]
        between = ops("mul", _sum(ops, apart), float(self._count))
        return mean, ops("add", _sum(ops, spreads), between)


def _sum(ops: Ops, parts: Sequence[Expr]) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = ops("add", total, part)
    return total
