"""Regions: a nest that chooses by position is cut into nests that need not choose.

What reads a padded softmax, or the pieces of a `cat`, takes another value from every region of
its space. Cut where the regions meet, each part reads one producer at plain positions, so that it
can become part of that producer's own loop and write where the whole is wanted: one buffer, and
several loops that write disjoint parts of it. Together the parts are the nest: their spaces are
a partition of its space.

A step may be cut where it reads what rows make, on conditions of position, or a tensor that was
written in pieces. Whether a cut pays is not known here: `lower` tries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

from kernelwright.tools.codegen.ir import Buffer
from kernelwright.tools.codegen.lower.fusion.inline import inlined
from kernelwright.tools.codegen.lower.nests.context import Context, Step
from kernelwright.tools.codegen.lower.nests.expressions import (
    Address,
    Affine,
    Expr,
    Term,
    address,
    reachable,
)
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write, where_of
from kernelwright.tools.codegen.lower.nests.positions import affine_of, decided
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.codegen.lower.nests.views import contiguous_strides

# More loops than these cost more to launch than what they save; and fills that are no wider than
# this become numbers of a row, written by the loop that has the row.
MOST_PARTS, NARROW_FILL = 4, 2
_COMPARISONS = {"ge": (0,), "lt": (0,), "le": (1,), "gt": (1,), "eq": (0, 1), "ne": (0, 1)}

Cuts = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Parts:
    """A buffer that several nests write, and where they write."""

    buffer: Buffer
    writes: tuple[Address, ...]

    def starts(self) -> Iterator[tuple[int, int, frozenset[int]]]:
        """(stride, size, first positions) of each dimension along which parts differ."""
        shape = self.buffer.shape
        for size, step in zip(shape, contiguous_strides(shape), strict=True):
            found = frozenset(_lowest(write) // step % size for write in self.writes)
            if len(found) > 1:
                yield step, size, found - {0}


def _lowest(where: Address) -> int:
    return where.offset + sum(min(0, term.step * (term.size - 1)) for term in where.terms)


def cuts_of(ops: Ops, nest: Nest, parts: Sequence[Parts]) -> Cuts:
    """Where each outer axis of a nest should be cut; empty where nothing asks for it."""
    found: dict[str, set[int]] = {}
    for axis, at in (*_at_comparisons(ops, nest), *_at_parts(ops, nest, parts)):
        if axis in nest.outer and 0 < at < ops.pool.sizes[axis]:
            found.setdefault(axis, set()).add(at)
    return {axis: tuple(sorted(points)) for axis, points in found.items()}


def _at_comparisons(ops: Ops, nest: Nest) -> Iterator[tuple[str, int]]:
    for expr in nest.exprs:
        if expr.op not in _COMPARISONS or expr.args[1].op != "const":
            continue
        limit, place = expr.args[1].value, affine_of(ops.pool, expr.args[0])
        if place is None or len(place.terms) != 1 or not isinstance(limit, int):
            continue
        (term,) = place.terms
        for beyond in _COMPARISONS[expr.op]:
            yield str(term.by), _crossing(place.offset, term.step, limit + beyond)


def _crossing(offset: int, step: int, limit: int) -> int:
    """The first p at which `offset + step * p >= limit` is not what it is before."""
    return -((offset - limit) // step) if step > 0 else (offset - limit) // -step + 1


def _at_parts(ops: Ops, nest: Nest, parts: Sequence[Parts]) -> Iterator[tuple[str, int]]:
    known = {one.buffer.name: one for one in parts}
    for load in nest.loads:
        where = where_of(load)
        one = known.get(where.buffer)
        for step, size, starts in one.starts() if one is not None else ():
            along = [term for term in where.terms if step <= abs(term.step) < step * size]
            if len(along) == 1 and along[0].step % step == 0:
                for start in starts:
                    first, by = where.offset // step % size, along[0].step // step
                    yield str(along[0].by), _crossing(first, by, start)


def cut(ops: Ops, nest: Nest, cuts: Cuts) -> list[Nest]:
    """The parts of a nest; none where there would be too many."""
    if not cuts or prod(len(points) + 1 for points in cuts.values()) > MOST_PARTS:
        return []
    made = list[Nest]()
    for chosen in product(*(_between(ops, axis, points) for axis, points in cuts.items())):
        part = _part(ops, nest, dict(zip(cuts, chosen, strict=True)))
        made += [part] if part.loads else _numbers(ops, part)
    return made


def _between(ops: Ops, axis: str, points: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise((0, *points, ops.pool.sizes[axis])))


def _part(ops: Ops, nest: Nest, chosen: Mapping[str, tuple[int, int]]) -> Nest:
    """The nest at positions `begin` to `end` (excluded) of some axes, simplified for them."""
    at: dict[str, Affine] = {}
    axes: dict[str, tuple[str, ...]] = {}
    for axis, (begin, end) in chosen.items():
        name = ops.pool.axis(end - begin) if end - begin > 1 else ""
        terms = (Term(name, 1, end - begin),) if name else ()
        at[axis], axes[axis] = Affine(begin, terms), (name,) if name else ()
    outer = tuple(name for axis in nest.outer for name in axes.get(axis, (axis,)))
    placed = nest.placed(ops, at, outer, nest.inner)
    values = _simplified(ops, [write.value for write in placed.writes])
    pairs = zip(placed.writes, values, strict=True)
    return Nest(outer, nest.inner, tuple(Write(w.address, value) for w, value in pairs))


def _numbers(ops: Ops, nest: Nest) -> list[Nest]:
    """A narrow nest that reads nothing, one position of its shortest axis at a time."""
    sizes = ops.pool.sizes
    shortest = min(nest.outer, key=lambda axis: sizes[axis], default=None)
    if shortest is None or len(nest.outer) < 2 or sizes[shortest] > NARROW_FILL:
        return [nest]
    return [_part(ops, nest, {shortest: (at, at + 1)}) for at in range(sizes[shortest])]


def _simplified(ops: Ops, roots: Sequence[Expr]) -> list[Expr]:
    """The expressions without what every position decides alike, their reads at plain places."""
    new: dict[Expr, Expr] = {}
    for expr in reachable(roots):
        args = tuple(new[arg] for arg in expr.args)
        if expr.op == "load":
            new[expr] = _plain(ops, expr, new)
        elif expr.args:
            pool = ops.pool
            again = pool.make(expr.op, expr.dtype, args, value=expr.value, word=expr.word)
            new[expr] = decided(ops, ops.remake(again))
        else:
            new[expr] = expr
    return [new[root] for root in roots]


def _plain(ops: Ops, load: Expr, new: Mapping[Expr, Expr]) -> Expr:
    where = where_of(load)
    offset, terms = where.offset, list[Term]()
    for term in where.terms:
        by = new[term.by] if isinstance(term.by, Expr) else term.by
        place = affine_of(ops.pool, by) if isinstance(by, Expr) else None
        if place is None:
            terms.append(Term(by, term.step, term.size))
            continue
        offset += term.step * place.offset
        terms += [Term(one.by, one.step * term.step, one.size) for one in place.terms]
    condition = tuple(new[arg] for arg in load.args)
    moved = address(where.buffer, where.dtype, offset, terms)
    return ops.pool.make("load", load.dtype, condition, address=moved)


Writers = Mapping[str, list[Nest]]
# Expressions of a part: as many as inlining allows elsewhere.
_LIMIT = 240


def in_regions(
    context: Context, steps: Sequence[Step], wanted: frozenset[str]
) -> tuple[list[Step], list[str]]:
    """The steps, those that make a buffer of `wanted` cut, and what else could be cut so.

    Args:
        context: the translation.
        steps: what makes a buffer before what reads it.
        wanted: names of buffers whose makers are cut.

    Returns:
        The steps, and the name of a buffer of each step that can be cut.
    """
    result: list[Step] = []
    cuttable: list[str] = []
    writers: dict[str, list[Nest]] = {}
    for step in steps:
        name = min(step.targets, default="")
        nests = _parts(context, step.nest, writers) if step.nest is not None else []
        if nests and name not in cuttable:
            cuttable.append(name)
        if not nests or name not in wanted:
            result.append(step)
            nests = [step.nest] if step.nest is not None else []
        else:
            result += [Step(step.number, nest, stage=step.stage) for nest in nests]
        for nest in nests:
            for buffer in nest.targets:
                writers.setdefault(buffer, []).append(nest)
    return result, cuttable


def _parts(context: Context, nest: Nest, writers: Writers) -> list[Nest]:
    """The parts of a nest; none where it reads nothing in regions."""
    made = {name: writers[name] for name in sorted(nest.reads) if name in writers}
    pieces = {name: nests for name, nests in made.items() if len(nests) > 1}
    if not pieces and not any(nests[0].inner for nests in made.values()):
        return []
    parts = [
        Parts(context.buffers[name], tuple(one.writes[0].address for one in nests))
        for name, nests in pieces.items()
    ]
    found = cut(context.ops, nest, cuts_of(context.ops, nest, parts))
    complete = [one for part in found if (one := _of_pieces(context, part, pieces)) is not None]
    return complete if len(complete) == len(found) else []


def _of_pieces(context: Context, nest: Nest, pieces: Writers) -> Nest | None:
    """The nest with what it reads of tensors made in pieces computed; None where it cannot."""
    while True:
        load = next((load for load in nest.loads if where_of(load).buffer in pieces), None)
        if load is None:
            return nest
        name = where_of(load).buffer
        made = (
            inlined(context.ops, nest, load, piece)
            for piece in pieces[name]
            if not piece.inner and len(piece.writes) == 1 and name not in context.stored
        )
        new = next((one for one in made if one is not None), None)
        if new is None or len(new.exprs) > _LIMIT:
            return None
        nest = new
