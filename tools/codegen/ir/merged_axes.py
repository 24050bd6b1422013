"""A loop with fewer axes: those of one position left out, neighbours walked as one merged.

Products are read off such loops: rows that two axes make up are rows like any other. What a loop
folds over, or takes statistics over, is not merged with what it keeps.

Where some accesses alone walk neighbours as one, these move along a merged axis and the others
along its parts; such axes are no loop's, since whoever prints them has to tell the parts apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from math import prod

from kernelwright.tools.codegen.ir.loops import Access, Axis, Loop, Stmt, Stride, walked_as_one
from kernelwright.tools.types import Value


class MergedAxis(Value):
    """Axes as one: `parts` are what `axis` is made of, the outermost first."""

    axis: Axis
    parts: tuple[Axis, ...]


def with_merged_axes(loop: Loop) -> Loop:
    """The loop without axes of one position, and neighbours that every access walks as one merged.

    Axes whose positions are computed with stay as they are.
    """
    counted = {stmt.args[0] for stmt in loop.body if stmt.op == "index"}
    for axis in (*loop.outer, *loop.inner):
        if axis.size == 1 and axis.name not in counted:
            loop = _without_axis(loop, axis.name, {})
    while (pair := _mergeable(loop, counted)) is not None:
        high, low = pair
        loop = _without_axis(loop, high.name, {low.name: high.size * low.size})
    return loop


def _mergeable(loop: Loop, counted: set[str]) -> tuple[Axis, Axis] | None:
    folded = {name for stmt in loop.body for name in stmt.along}
    every = [stmt.access for stmt in loop.body if stmt.access is not None]
    every += [store.access for store in loop.stores]
    for axes in (loop.outer, loop.inner):
        free = [axis for axis in axes if axis.name not in counted]
        for high, low in permutations(free, 2):
            alike = (high.name in folded) == (low.name in folded)
            if alike and all(
                walked_as_one(access.step(high.name), access.step(low.name), low.size)
                for access in every
            ):
                return high, low
    return None


def _without_axis(loop: Loop, name: str, sizes: Mapping[str, int]) -> Loop:
    """The loop without an axis; others may get new sizes."""

    def axes(of: tuple[Axis, ...]) -> tuple[Axis, ...]:
        kept = (axis for axis in of if axis.name != name)
        return tuple(Axis(name=a.name, size=sizes.get(a.name, a.size)) for a in kept)

    def moved(access: Access) -> Access:
        strides = tuple(stride for stride in access.strides if stride.by != name)
        return access.model_copy(update={"strides": strides})

    def changed(stmt: Stmt) -> Stmt:
        access = moved(stmt.access) if stmt.access else None
        along = tuple(one for one in stmt.along if one != name)
        return stmt.model_copy(update={"access": access, "along": along})

    body = tuple(map(changed, loop.body))
    stores = tuple(s.model_copy(update={"access": moved(s.access)}) for s in loop.stores)
    return loop.model_copy(
        update={"outer": axes(loop.outer), "inner": axes(loop.inner), "body": body,
                "stores": stores}
    )  # fmt: skip


def merged_whole(axes: Sequence[Axis], walks: Iterable[Access]) -> MergedAxis | None:
    """Several axes as one, from the outermost on; None where not all of these accesses do that."""
    pairs = [*pairwise(axes)]
    together = all(
        walked_as_one(access.step(high.name), access.step(low.name), low.size)
        for access in walks
        for high, low in pairs
    )
    if not pairs or not together:
        return None
    whole = Axis(name="_".join(axis.name for axis in axes), size=prod(axis.size for axis in axes))
    return MergedAxis(axis=whole, parts=tuple(axes))


def by_merged_axes(access: Access, merged: Sequence[MergedAxis]) -> Access:
    """The access along merged axes; what does not walk one of them so moves along its parts."""
    for one in merged:
        steps = [access.step(part.name) for part in one.parts]
        sizes = [part.size for part in one.parts[1:]]
        together = zip(pairwise(steps), sizes, strict=True)
        if steps[-1] and all(walked_as_one(*pair, size) for pair, size in together):
            *outer, last = (part.name for part in one.parts)
            whole = Stride(by=one.axis.name, step=steps[-1])
            kept = (stride for stride in access.strides if stride.by not in outer)
            strides = tuple(whole if stride.by == last else stride for stride in kept)
            access = access.model_copy(update={"strides": strides})
    return access
