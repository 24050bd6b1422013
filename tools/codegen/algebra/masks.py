"""Masks that a module makes of positions: which compare is `row == column`, whatever its spelling.

Integers made of `arange` by views, sums and multiples are affine in the position; a comparison of
two such is one of an affine form with zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch, broadcast
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, UnlikeError, base
from kernelwright.tools.types import Arg, Ref, Scalar

_VIEWS = ("view", "expand", "unsqueeze", "squeeze", "_unsafe_view", "alias", "reshape")


@dataclass(frozen=True)
class Place:
    """An integer as a position: constant + sum of steps, one for each dimension."""

    steps: tuple[int, ...]
    constant: int = 0

    def times(self, factor: int) -> Place:
        """A multiple."""
        return Place(tuple(step * factor for step in self.steps), self.constant * factor)

    def plus(self, other: Place) -> Place:
        """A sum; the shorter is broadcast."""
        rank = max(len(self.steps), len(other.steps))
        left, right = (((0,) * (rank - len(p.steps)) + p.steps) for p in (self, other))
        steps = tuple(a + b for a, b in zip(left, right, strict=True))
        return Place(steps, self.constant + other.constant)


def diagonal_mask(sketch: Sketch, arg: Arg) -> bool:
    """Whether a truth value is `row == column` of the last two dimensions."""
    if not isinstance(arg, Ref):
        return False
    node = sketch.node(arg.node)
    name = base(node.op)
    if name in _VIEWS:
        same = sketch.shape(node.args[0])[-2:] == node.out[0].shape[-2:]
        return same and diagonal_mask(sketch, node.args[0])
    if name != "eq":
        return False
    left, right = (place(sketch, side) for side in node.args[:2])
    if left is None or right is None:
        return False
    apart = left.plus(right.times(-1))
    rows, columns = (0, *apart.steps)[-2:]
    outer = any(apart.steps[:-2])
    return not outer and apart.constant == 0 and rows == -columns != 0


def place(sketch: Sketch, arg: Arg) -> Place | None:
    """An integer as an affine form of its position; None for any other."""
    if isinstance(arg, Scalar):
        return Place((), arg.value) if isinstance(arg.value, int) else None
    if not isinstance(arg, Ref):
        return None
    node = sketch.node(arg.node)
    name, arguments = base(node.op), Arguments(node)
    try:
        if name == "arange":
            return _arange(node.op, arguments)
        if name in _VIEWS:
            inner = place(sketch, node.args[0])
            shapes = sketch.shape(node.args[0]), node.out[0].shape
            return None if inner is None else _viewed(inner, *shapes)
        if name in ("add", "sub") and not node.kwargs:
            sides = [place(sketch, side) for side in node.args[:2]]
            left, right = sides
            if left is None or right is None:
                return None
            return left.plus(right.times(-1 if name == "sub" else 1))
    except UnlikeError:
        return None
    return None


def _arange(op: str, arguments: Arguments) -> Place:
    if op.endswith("start_step"):
        step = arguments.integer(2, "step", 1)
        return Place((step,), arguments.integer(0))
    return Place((1,), arguments.integer(0) if op.endswith("start") else 0)


def _viewed(inner: Place, old: Shape, new: Shape) -> Place | None:
    """The same numbers where dimensions of size 1 come, go or are repeated."""
    given = [step for step, size in zip(inner.steps, old, strict=True) if size > 1]
    sizes = [size for size in old if size > 1]
    steps: list[int] = []
    for size in reversed(new):
        if sizes and size == sizes[-1]:
            sizes.pop()
            steps.append(given.pop())
        else:
            steps.append(0)
    fits = broadcast(old, new) == new or not sizes
    return Place(tuple(reversed(steps)), inner.constant) if not sizes and fits else None
