"""A shape cut finer: every dimension as the parts that views above or below it tell apart.

Parts of size 1 do not exist. Two shapes of the same elements have a common refinement unless
their dimensions overlap (6 as 2 x 3 and as 3 x 2), and then there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.lower.nests.views import refine


@dataclass(frozen=True)
class Parts:
    """Parts of each dimension of a shape, and which parts (counted from the first) are summed."""

    dims: tuple[tuple[int, ...], ...]
    summed: frozenset[int]

    @property
    def flat(self) -> tuple[int, ...]:
        """All parts in order."""
        return tuple(size for dim in self.dims for size in dim)

    @property
    def kept(self) -> tuple[int, ...]:
        """All parts, those summed with size 1: the shape of a sum."""
        return tuple(1 if at in self.summed else size for at, size in enumerate(self.flat))

    def of(self, dim: int) -> range:
        """Which parts belong to a dimension."""
        start = sum(len(parts) for parts in self.dims[:dim])
        return range(start, start + len(self.dims[dim]))

    def all_summed(self, dim: int) -> bool:
        """Whether a dimension is summed whole."""
        return all(at in self.summed for at in self.of(dim))

    def none_summed(self, dim: int) -> bool:
        """Whether nothing of a dimension is summed."""
        return not any(at in self.summed for at in self.of(dim))

    def lifted(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The shape in parts of a tensor broadcast to this one; None for another tensor."""
        shape = (1,) * (len(self.dims) - len(shape)) + tuple(shape)
        if len(shape) != len(self.dims):
            return None
        result: list[int] = []
        for size, parts in zip(shape, self.dims, strict=True):
            result += [1] * len(parts) if size == 1 else list(parts)
        return tuple(result)

    def viewed(self, shape: Sequence[int]) -> Parts | None:
        """The same elements under another shape; None where the two overlap."""
        finer = refine(self.flat, [size for size in shape if size > 1])
        if finer is None:
            return None
        summed, at = set[int](), 0
        for number, size in enumerate(self.flat):
            while size > 1:
                size //= finer[at]
                summed |= {at} if number in self.summed else set()
                at += 1
        return Parts(_grouped(finer, shape), frozenset(summed))


def whole(shape: Sequence[int], dims: Sequence[int]) -> Parts:
    """A shape in its own dimensions, of which some are summed."""
    parts = tuple((size,) if size > 1 else () for size in shape)
    wanted = {dim % len(shape) for dim in dims}
    first = Parts(parts, frozenset())
    return Parts(parts, frozenset(at for dim in wanted for at in first.of(dim)))


def _grouped(sizes: Sequence[int], shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    left, result = list(sizes), list[tuple[int, ...]]()
    for size in shape:
        parts: list[int] = []
        while size > 1:
            parts.append(left.pop(0))
            size //= parts[-1]
        result.append(tuple(parts))
    return tuple(result)


def refined(shape: Sequence[int], old: Parts, new: Parts) -> tuple[int, ...]:
    """A shape in old parts (1 where broadcast) in the finer parts of `new`."""
    result: list[int] = []
    left = list(new.flat)
    for size, part in zip(shape, old.flat, strict=True):
        while part > 1:
            finer = left.pop(0)
            result.append(1 if size == 1 else finer)
            part //= finer
    return tuple(result)


def nested(outer: Parts, shape: Sequence[int], dims: set[int], *, kept: bool) -> Parts:
    """Parts of what was summed over `dims` before; `kept` if those stayed with size 1."""
    given, found = iter(outer.dims), list[tuple[int, ...]]()
    summed, number = set[int](), 0
    for at, size in enumerate(shape):
        if at in dims:
            found.append((size,) if size > 1 else ())
            summed |= {sum(map(len, found)) - 1} if size > 1 else set()
            if kept:
                next(given)
            continue
        parts = next(given)
        for _ in parts:
            if number in outer.summed:
                summed.add(sum(map(len, found)) + (number - _start(outer, number)))
            number += 1
        found.append(parts)
    return Parts(tuple(found), frozenset(summed))


def _start(outer: Parts, number: int) -> int:
    """The first part of the dimension that a part belongs to."""
    return next(of.start for of in map(outer.of, range(len(outer.dims))) if number in of)
