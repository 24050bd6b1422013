"""Where elements are: which axis is vectorised, which neighbours merge with it, and addresses.

A *lane group* is the run of innermost axes that one vector loop covers. Axes join it while every
access moves through them in one constant step; a group that would be too short to fill a vector
takes its neighbour anyway, and accesses then divide the position back into coordinates.

CUDA's `nest` merges the axes of a loop once, for all passes: there all threads of a row meet in one
order. Here each sweep merges what its own accesses allow, as no other has to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod

from kernelwright.tools.codegen.ir import Access, Axis, Loop, Stmt
from kernelwright.tools.codegen.ir.loops import by_falling_stride, walked_as_one
from kernelwright.tools.types import Value

# Below this many elements a vector loop is mostly its own beginning and end.
SHORT = 16


class LaneGroup(Value):
    """Axes walked together by a vector loop, outermost first; empty for a single element."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of positions."""
        return prod(axis.size for axis in self.axes)

    def names(self) -> frozenset[str]:
        """Names of the axes."""
        return frozenset(axis.name for axis in self.axes)

    def step(self, access: Access) -> int | None:
        """Elements that `access` moves a position; None when that is not constant."""
        return _constant_step(self.axes, access)

    def coordinate(self, axis: str, position: str) -> str:
        """The coordinate along one of the axes at a position of the group."""
        below = 1
        for index in range(len(self.axes) - 1, -1, -1):
            if self.axes[index].name == axis:
                return _decoded(position, below, self.axes[index].size, outermost=index == 0)
            below *= self.axes[index].size
        raise KeyError(axis)


def _decoded(position: str, below: int, size: int, *, outermost: bool) -> str:
    text = position if below == 1 else f"{position} / {below}"
    return text if outermost else f"{text} % {size}"


def decode(axes: Sequence[Axis], position: str) -> list[tuple[str, str]]:
    """(axis name, expression) of each coordinate at a row-major position."""
    group = LaneGroup(axes=tuple(axes))
    return [(axis.name, group.coordinate(axis.name, position)) for axis in axes]


def linear(axes: Sequence[Axis], coordinate: Callable[[str], str]) -> str:
    """The row-major position at given coordinates."""
    text = "0"
    for axis in axes:
        here = coordinate(axis.name)
        text = here if text == "0" else f"({text}) * {axis.size} + {here}" if here != "0" else text
    return text


def lane_group(
    axes: Sequence[Axis], accesses: Iterable[Access], indexed: frozenset[str]
) -> tuple[tuple[Axis, ...], LaneGroup]:
    """Splits axes into leading ones and the lane group.

    Args:
        axes: Outermost first; the last one is where neighbours in memory should be.
        accesses: Everything read or written in the loop.
        indexed: Axes whose coordinate is itself a value.
    """
    accesses = tuple(accesses)
    rest = list(axes)
    group: list[Axis] = []
    while rest:
        longer = [rest[-1], *group]
        names = {axis.name for axis in longer}
        smooth = all(_constant_step(longer, access) is not None for access in accesses)
        smooth = smooth and not (len(longer) > 1 and names & indexed)
        if group and not smooth and prod(axis.size for axis in group) >= SHORT:
            break
        group = longer
        rest.pop()
    return tuple(rest), LaneGroup(axes=tuple(group))


def _constant_step(axes: Sequence[Axis], access: Access) -> int | None:
    for outer, inner in pairwise(axes):
        steps = access.step(outer.name), access.step(inner.name)
        if not walked_as_one(*steps, inner.size):
            return None
    return access.step(axes[-1].name) if axes else 0


def dominant(loop: Loop, accesses: Iterable[Access] | None = None) -> Access | None:
    """The access that touches most elements, the first of them; None for a loop without any."""
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    if accesses is None:
        loads = [stmt.access for stmt in loop.body if stmt.access is not None]
        accesses = [*loads, *(store.access for store in loop.stores)]

    def touched(access: Access) -> int:
        return prod(size for name, size in sizes.items() if access.step(name))

    return max(accesses, key=touched, default=None)


def sorted_axes(axes: Sequence[Axis], access: Access | None) -> tuple[Axis, ...]:
    """Axes by falling stride of an access, so that the last one is contiguous in it."""
    if access is None:
        return tuple(axes)
    return tuple(by_falling_stride(axes, [lambda axis: access.step(axis.name)]))


def address(
    access: Access, coordinates: Mapping[str, str], extra: Sequence[tuple[int, str]] = ()
) -> str:
    """Offset + sum of stride x coordinate, over the given coordinates and `extra` terms."""
    terms = [str(access.offset)] if access.offset else []
    for step, text in [*((access.step(by), text) for by, text in coordinates.items()), *extra]:
        if step and text != "0":
            terms.append(text if step == 1 else f"{step} * {text}")
    return " + ".join(terms) or "0"


def without_single(loop: Loop) -> Loop:
    """The loop without axes of one position; a reduced loop keeps one inner axis at least."""
    inner = tuple(axis for axis in loop.inner if axis.size != 1) or loop.inner[-1:]
    outer = tuple(axis for axis in loop.outer if axis.size != 1)
    names = {axis.name for axis in (*outer, *inner)}
    gone = {axis.name for axis in (*loop.outer, *loop.inner)} - names
    if not gone:
        return loop
    body = tuple(_without(stmt, gone) for stmt in loop.body)
    stores = tuple(
        store.model_copy(update={"access": _narrower(store.access, gone)}) for store in loop.stores
    )
    return loop.model_copy(update={"outer": outer, "inner": inner, "body": body, "stores": stores})


def _without(stmt: Stmt, gone: set[str]) -> Stmt:
    if stmt.op == "index" and stmt.args[0] in gone:
        return stmt.model_copy(update={"op": "const", "args": (), "value": 0})
    if stmt.access is None:
        return stmt
    return stmt.model_copy(update={"access": _narrower(stmt.access, gone)})


def _narrower(access: Access, gone: set[str]) -> Access:
    strides = tuple(stride for stride in access.strides if stride.by not in gone)
    return access.model_copy(update={"strides": strides})
