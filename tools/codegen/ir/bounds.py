"""Bounds of positions, read off comparisons: where a condition of a loop holds.

A bound is an affine function of axis positions that must not be negative. Masks, triangles and the
edges of padded windows are made of these; a condition on values is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernelwright.tools.codegen.ir.loops import Axis, Stmt, Stride
from kernelwright.tools.types import Value


class Bound(Value):
    """Positions where `offset` + sum of step x (axis position) is at least 0."""

    offset: int
    steps: tuple[Stride, ...]

    def plus(self, other: Bound, factor: int = 1) -> Bound:
        """The sum with a multiple of another."""
        total = {stride.by: stride.step for stride in self.steps}
        for stride in other.steps:
            total[stride.by] = total.get(stride.by, 0) + factor * stride.step
        steps = tuple(Stride(by=by, step=step) for by, step in total.items() if step)
        return Bound(offset=self.offset + factor * other.offset, steps=steps)

    def moves(self, axis: Axis) -> bool:
        """Whether it depends on the position along an axis."""
        return any(stride.by == axis.name for stride in self.steps)

    def holds(self, at: Mapping[str, int]) -> bool:
        """Whether it holds at a position; axes that are not given are at 0."""
        return self.offset + sum(one.step * at.get(one.by, 0) for one in self.steps) >= 0

    @property
    def elsewhere(self) -> Bound:
        """All other positions."""
        nowhere = Bound(offset=-1, steps=())
        return nowhere.plus(self, -1)


def bounds_of(name: str, body: Iterable[Stmt]) -> tuple[Bound, ...] | None:
    """The bounds within which a condition holds; None where it is more than bounds of positions.

    Args:
        name: The statement of the condition.
        body: It and everything that it is computed from.
    """
    known = {stmt.name: stmt for stmt in body}
    found: list[Bound] = []
    waiting = [name]
    while waiting:
        stmt = known[waiting.pop()]
        if stmt.op == "logical_and":
            waiting += stmt.args
            continue
        bound = bound_of(stmt.name, known)
        if bound is None:
            return None
        found.append(bound)
    return tuple(found)


_COMPARED = {"ge": (0, 1, 0), "gt": (0, 1, 1), "le": (1, 0, 0), "lt": (1, 0, 1)}


def bound_of(name: str, known: Mapping[str, Stmt]) -> Bound | None:
    """Where a comparison of positions holds; None for any other condition."""
    stmt = known.get(name)
    if stmt is None or stmt.op not in _COMPARED:
        return None
    larger, smaller, least = _COMPARED[stmt.op]
    left, right = (affine_position(stmt.args[at], known) for at in (larger, smaller))
    if left is None or right is None:
        return None
    return left.plus(right, -1).plus(Bound(offset=-least, steps=()))


def affine_position(name: str, known: Mapping[str, Stmt]) -> Bound | None:
    """An integer as offset and steps; None where it is no such thing."""
    stmt = known.get(name)
    if stmt is None:
        return None
    if stmt.op == "const" and isinstance(stmt.value, int):
        return Bound(offset=stmt.value, steps=())
    if stmt.op == "index":
        return Bound(offset=0, steps=(Stride(by=stmt.args[0], step=1),))
    if stmt.op not in ("add", "sub", "mul"):
        return None
    left, right = (affine_position(arg, known) for arg in stmt.args)
    if left is None or right is None:
        return None
    if stmt.op == "mul":
        left, right = (right, left) if not left.steps else (left, right)
        return None if right.steps else Bound(offset=0, steps=()).plus(left, right.offset)
    return left.plus(right, 1 if stmt.op == "add" else -1)
