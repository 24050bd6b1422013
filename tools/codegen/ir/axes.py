"""How axes lie in memory: which order is contiguous, and which neighbours are walked as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

AxisT = TypeVar("AxisT")
Step = Callable[[AxisT], int]

# An axis along which an access stands still is outermost: what it reads there is used again.
_STILL = 1 << 62


def by_falling_stride(axes: Iterable[AxisT], guides: Sequence[Step[AxisT]]) -> list[AxisT]:
    """Axes with the contiguous one last; guides say the step along an axis, the first decides."""
    return sorted(axes, key=lambda axis: tuple(-(abs(step(axis)) or _STILL) for step in guides))


def walked_as_one(outer_step: int, inner_step: int, inner_size: int) -> bool:
    """Whether an access moves through two neighbouring axes in one constant step."""
    return outer_step == inner_step * inner_size
