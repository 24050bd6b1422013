"""Sums over windows read off a loop: what neighbouring outputs share, and how often it is computed.

Output o and tap k of a window read what lies at o x step + k x gap, so outputs that lie beside each
other along an axis read many of the same lines. Of everything under the sums this module says what
it is computed from: a line (a sample, and whatever is made of samples alone), a tap (a weight),
neither, or both. A line's values serve all outputs that see it, a tap's all outputs of a thread.

The pair of an outer and an inner axis that is told apart so is the one that moves least for each
other, but for the outer axis along which results lie together: that is for neighbouring lanes.
Positions are affine forms, never statements of their own. Not here: loops that reduce by anything
but sums, that reduce twice, and positions of extrema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from math import gcd, prod

from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt
from kernelwright.tools.codegen.ir.bounds import Bound, affine_position, bound_of
from kernelwright.tools.codegen.ir.loops import (
    axis_names,
    by_falling_stride,
    operands,
    statements_behind,
)
from kernelwright.tools.types import DType

# Neighbouring outputs that a thread may take.
MOST_OUTPUTS = 16


class Level(IntEnum):
    """Where a value under the sums is computed; each level also sees those before it.

    ROW: once for all outputs of a thread. COLUMN: once for all taps along the axis. TAP: once for
    each of these. LINE: once for each line that outputs see. PAIR: for every tap of every output.
    """

    ROW = 0
    COLUMN = 1
    TAP = 2
    LINE = 3
    PAIR = 4


@dataclass(frozen=True)
class SlidingSums:
    """A loop of sums over windows, whose outputs share lines along `output` and `tap`.

    Output o and tap k see line o x `step` + k x `gap`; the two have no common factor. `lane` is the
    axis along which results lie together.
    """

    loop: Loop
    lane: Axis
    output: Axis
    tap: Axis
    step: int
    gap: int

    @property
    def reductions(self) -> tuple[Stmt, ...]:
        """The sums."""
        return tuple(stmt for stmt in self.loop.body if stmt.op == "reduce")

    @property
    def columns(self) -> tuple[Axis, ...]:
        """The inner axes besides the taps'."""
        return tuple(axis for axis in self.loop.inner if axis.name != self.tap.name)

    @cached_property
    def walked(self) -> tuple[Axis, ...]:
        """The outer axes with those last along which results lie together."""
        guides = [lambda axis, to=store.access: to.step(axis.name) for store in self.loop.stores]
        return tuple(by_falling_stride(self.loop.outer, guides))

    def lines(self, outputs: int) -> int:
        """Lines that so many neighbouring outputs see."""
        taps = range(self.tap.size)
        return len({o * self.step + k * self.gap for o in range(outputs) for k in taps})

    @property
    def shares(self) -> bool:
        """Whether some neighbours see a line in common."""
        outputs = min(MOST_OUTPUTS, self.output.size)
        return self.lines(outputs) < outputs * self.tap.size

    @cached_property
    def places(self) -> Mapping[str, Bound]:
        """The integers that are affine in the axes' positions."""
        known = {stmt.name: stmt for stmt in self.loop.body}
        found = {
            stmt.name: affine_position(stmt.name, known)
            for stmt in self.loop.body
            if stmt.dtype is DType.INT64
        }
        return {name: place for name, place in found.items() if place is not None}

    @cached_property
    def sides(self) -> Mapping[str, Bound]:
        """Comparisons of such integers, as what has to be no less than 0."""
        known = {stmt.name: stmt for stmt in self.loop.body}
        found = {stmt.name: bound_of(stmt.name, known) for stmt in self.loop.body}
        return {
            name: side
            for name, side in found.items()
            if side is not None and all(arg in self.places for arg in known[name].args)
        }

    def where(self, access: Access) -> Bound:
        """An address, its affine indices put in their places."""
        axes = axis_names(self.loop)
        total = Bound(offset=access.offset, steps=())
        for stride in access.strides:
            if stride.by in axes:
                total = total.plus(Bound(offset=0, steps=(stride,)))
            elif stride.by in self.places:
                total = total.plus(self.places[stride.by], stride.step)
        return total

    @cached_property
    def _sees(self) -> Mapping[str, frozenset[str]]:
        """For each value, the axes that it varies along, "line" where output and tap go together.

        A value of both by themselves varies along "pair".
        """
        found: dict[str, frozenset[str]] = {}
        axes = axis_names(self.loop)
        for stmt in self.loop.body:
            place = self.places.get(stmt.name) or self.sides.get(stmt.name)
            if place is not None:
                found[stmt.name] = self._joined([self._moved(place)])
                continue
            parts = [found[name] for name in operands(stmt, axes) if name not in self.places]
            parts += [found[name] for name in stmt.args if name in self.places]
            if stmt.access is not None:
                parts.append(self._moved(self.where(stmt.access)))
            inner = {"line", "pair", self.tap.name} | {axis.name for axis in self.columns}
            seen = self._joined(parts)
            if stmt.op == "reduce":
                seen = (seen - inner) | {self.output.name}
            found[stmt.name] = seen
        return found

    def _moved(self, place: Bound) -> frozenset[str]:
        steps = {stride.by: stride.step for stride in place.steps}
        one, other = steps.pop(self.output.name, 0), steps.pop(self.tap.name, 0)
        seen = set(steps)
        if one and other:
            seen.add("line" if one * self.gap == other * self.step else "pair")
        elif one or other:
            seen.add(self.output.name if one else self.tap.name)
        return frozenset(seen)

    def _joined(self, parts: Iterable[frozenset[str]]) -> frozenset[str]:
        """What a value of several varies along; a line beside anything else is a pair."""
        seen = frozenset[str]().union(*parts)
        both = seen & {"line", "pair", self.output.name, self.tap.name}
        return (seen - both) | {"pair"} if len(both) > 1 else seen

    def varies(self, name: str) -> bool:
        """Whether a value differs between lanes."""
        return self.lane.name in self._sees[name]

    def sees(self, name: str) -> frozenset[str]:
        """The axes that a value varies along; "line" and "pair" as output and tap go together."""
        return self._sees[name]

    def across(self) -> SlidingSums | None:
        """The same sums by another output and tap, where every sample lies on their lines too.

        A sample is then read once for all outputs of a tile. Lines of dilated windows are no
        neighbours, so there is none of these.
        """
        read = [self.where(s.access) for s in self.under() if s.op == "load" and s.access]
        found = [one for place in read for one in _pairs(self, place)]
        lines = [s.name for s in self.under() if self.level(s.name) is Level.LINE]
        for one in sorted(found, key=lambda one: one.step):
            apart = {one.output.name, one.tap.name}.isdisjoint({self.output.name, self.tap.name})
            beside = {"pair", one.output.name, one.tap.name}
            near = one.gap == 1 and one.step < one.tap.size
            if apart and near and not any(beside & one.sees(name) for name in lines):
                return one
        return None

    def level(self, name: str) -> Level:
        """Where a value under the sums is computed."""
        seen = self._sees[name]
        if seen & {"pair", self.output.name}:
            return Level.PAIR
        if "line" in seen:
            return Level.LINE
        if self.tap.name in seen:
            return Level.TAP
        return Level.COLUMN if seen & {axis.name for axis in self.columns} else Level.ROW

    def under(self) -> tuple[Stmt, ...]:
        """The statements that sums are computed from, in order, without positions."""
        return self._behind(stmt.args[0] for stmt in self.reductions)

    @property
    def kept(self) -> tuple[Stmt, ...]:
        """What is computed of a tap and used for every output that sees it."""
        under = self.under()
        read = {one.args[0] for one in self.reductions}
        for stmt in under:
            if self.level(stmt.name) is Level.PAIR:
                read |= {*operands(stmt, axis_names(self.loop))}
        return tuple(s for s in under if s.name in read and self.level(s.name) is Level.TAP)

    def after(self) -> tuple[Stmt, ...]:
        """The statements that stores need besides the sums and what is under them."""
        wanted = [store.value for store in self.loop.stores]
        axes = axis_names(self.loop)
        wanted += [s.by for store in self.loop.stores for s in store.access.strides]
        return self._behind(name for name in wanted if name not in axes)

    def _behind(self, names: Iterable[str]) -> tuple[Stmt, ...]:
        known, axes = {stmt.name: stmt for stmt in self.loop.body}, axis_names(self.loop)
        found = statements_behind(
            names,
            known,
            lambda stmt: operands(stmt, axes),
            taken=lambda stmt: stmt.name not in self.places and stmt.op != "reduce",
            opened=lambda stmt: stmt.name not in self.sides,
        )
        return tuple(stmt for stmt in self.loop.body if stmt.name in found)


def overlaps(loop: Loop) -> bool:
    """Whether some read comes to an element from several positions of outer and inner axes."""
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    inner = {axis.name for axis in loop.inner}
    for stmt in loop.body:
        strides = stmt.access.strides if stmt.access is not None else ()
        moved = {one.by: (sizes[one.by] - 1) * abs(one.step) for one in strides if one.by in sizes}
        visited = prod(sizes[by] for by in moved)
        if inner & set(moved) and not inner >= set(moved) and visited > sum(moved.values()) + 1:
            return True
    return False


def sliding_sums(loop: Loop) -> SlidingSums | None:
    """The sums over windows that a loop is; None where it is none, or nothing is shared."""
    reductions = [stmt for stmt in loop.body if stmt.op == "reduce"]
    plain = all(one.reduce is ReduceKind.SUM and one.dtype.is_floating for one in reductions)
    known = loop.passes()
    once = all(known[name] <= 1 for name in known) and not loop.is_for_products
    if not reductions or not plain or not once or any(s.op == "scan" for s in loop.body):
        return None
    inner = {axis.name for axis in loop.inner}
    if any(store.access.step(name) for store in loop.stores for name in inner):
        return None
    levels = loop.levels()
    if any(levels[store.value] == "element" for store in loop.stores):
        return None
    return _most_shared(loop)


def _most_shared(loop: Loop) -> SlidingSums | None:
    """The sums as the pair of axes has them of which most is shared."""
    written = max((store.access for store in loop.stores), key=lambda one: len(one.strides))
    moving = [axis for axis in loop.outer if axis.size > 1 and written.step(axis.name)]
    if not moving:
        return None
    lane = min(moving, key=lambda axis: abs(written.step(axis.name)))
    whole = SlidingSums(loop, lane, lane, lane, 1, 1)
    read = [whole.where(s.access) for s in loop.body if s.op == "load" and s.access is not None]
    found = [one for place in (*read, *whole.places.values()) for one in _pairs(whole, place)]
    best = min(found, key=lambda one: (one.step + one.gap, -one.tap.size), default=None)
    return best if best is not None and best.shares else None


def _pairs(whole: SlidingSums, place: Bound) -> list[SlidingSums]:
    """Every pair of axes along which a read, or a position, slides forward."""
    steps = {stride.by: stride.step for stride in place.steps}
    found = []
    for output in whole.loop.outer:
        for tap in whole.loop.inner:
            one, other = steps.get(output.name, 0), steps.get(tap.name, 0)
            if output is not whole.lane and min(output.size, tap.size) > 1 and one * other > 0:
                common = gcd(one, other)
                step, gap = abs(one) // common, abs(other) // common
                found.append(replace(whole, output=output, tap=tap, step=step, gap=gap))
    return found
