"""Conditions that only outputs near an edge can fail, as ranges of positions along one axis.

A read that may lie in the padding is made on the condition that it does not: comparisons of
positions with constants. Each holds on one side of an axis; where all of them hold, a kernel need
not ask. Not here: conditions on data, and comparisons that mix axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.printing.nest import Nest
from kernelwright.tools.codegen.ir import Stmt


@dataclass(frozen=True)
class Side:
    """A condition that holds for positions `low` to `high` (excluded) of a walked axis."""

    axis: int
    low: int
    high: int


@dataclass(frozen=True)
class _Position:
    """`offset + step * position` along a walked axis; a constant where the step is 0."""

    offset: int
    step: int = 0
    axis: int = 0


class Edges:
    """The comparisons under which a nest reads.

    `sides` has every comparison that reads depend on, by statement; `within` has, for each load
    whose condition is made of nothing else, what it takes; an unconditional load takes nothing.
    """

    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        self._by_name = {stmt.name: stmt for stmt in nest.loop.body}
        self._positions: dict[str, _Position] = {}
        for stmt in nest.loop.body:
            found = self._position(stmt)
            if found is not None:
                self._positions[stmt.name] = found
        self.sides: dict[str, Side] = {}
        self.within: dict[str, tuple[Side, ...]] = {}
        for stmt in nest.loop.body:
            if stmt.op == "load":
                self._take(stmt)

    def inside(self) -> Mapping[int, tuple[int, int]]:
        """The positions along each axis, first and past the last, where every condition holds."""
        found: dict[int, tuple[int, int]] = {}
        for side in self.sides.values():
            low, high = found.get(side.axis, (0, self._nest.walked[side.axis]))
            found[side.axis] = (max(low, side.low), min(high, side.high))
        return found

    def _take(self, load: Stmt) -> None:
        names = [name for arg in load.args for name in self._conjuncts(arg)]
        sides = {name: self._side(self._by_name[name]) for name in names}
        known = {name: side for name, side in sides.items() if side is not None}
        if len(known) == len(sides):
            self.sides |= known
            self.within[load.name] = tuple(known.values())

    def _conjuncts(self, name: str) -> list[str]:
        stmt = self._by_name[name]
        if stmt.op != "logical_and":
            return [name]
        return [found for arg in stmt.args for found in self._conjuncts(arg)]

    def _side(self, stmt: Stmt) -> Side | None:
        if stmt.op not in ("ge", "lt") or not all(arg in self._positions for arg in stmt.args):
            return None
        place, bound = (self._positions[arg] for arg in stmt.args)
        if place.step <= 0 or bound.step:
            return None
        size = self._nest.walked[place.axis]
        first = min(size, max(0, -((place.offset - bound.offset) // place.step)))
        return Side(place.axis, *((first, size) if stmt.op == "ge" else (0, first)))

    def _position(self, stmt: Stmt) -> _Position | None:
        if stmt.op == "const" and isinstance(stmt.value, int):
            return _Position(stmt.value)
        if stmt.op == "index":
            steps = [(at, step) for at, step in enumerate(self._place(stmt)) if step]
            return _Position(0, steps[0][1], steps[0][0]) if len(steps) == 1 else None
        parts = [self._positions.get(arg) for arg in stmt.args]
        if stmt.op not in ("add", "sub", "mul") or len(parts) != 2:
            return None
        a, b = parts
        return None if a is None or b is None else _combined(stmt.op, a, b)

    def _place(self, stmt: Stmt) -> tuple[int, ...]:
        return self._nest.places[stmt.name].inner


def _combined(op: str, a: _Position, b: _Position) -> _Position | None:
    if op == "mul":
        a, b = (b, a) if b.step else (a, b)
        return None if b.step else _Position(a.offset * b.offset, a.step * b.offset, a.axis)
    sign = -1 if op == "sub" else 1
    if a.step and b.step and a.axis != b.axis:
        return None
    axis = a.axis if a.step else b.axis
    return _Position(a.offset + sign * b.offset, a.step + sign * b.step, axis)
