"""A loop's iteration space in the order a GPU wants it: few axes, the contiguous one last.

Axes of size one vanish, axes are ordered by stride and neighbours that every access walks as
one are merged, so that "x[n][c][h][w] + bias[c]" becomes three axes and a plain copy one.
Positions that a loop computes with (an `index`, the position of an argmax) take part as if they
were accesses, so merging never changes them. Not here: how the space is spread over threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.tools.codegen.ir import Access, Loop, ReduceKind, Stmt
from kernelwright.tools.codegen.ir.loops import by_falling_stride, walked_as_one
from kernelwright.tools.types import DType

_ORDERED = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)


@dataclass(frozen=True)
class AxisPlace:
    """An element of a buffer, or a computed position: offset plus steps along merged axes.

    `gathers` are (statement, step) for indirect access. `buffer` is "" for a position.
    """

    buffer: str
    dtype: DType
    offset: int
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    gathers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Nest:
    """A loop with its merged axes; `places` by statement name, `targets` by store.

    `kept` are the sizes of the outer axes and `walked` of the inner ones. A loop without inner
    axes walks all of its axes: then nothing is kept, and it has one "row".
    """

    loop: Loop
    kept: tuple[int, ...]
    walked: tuple[int, ...]
    places: Mapping[str, AxisPlace]
    targets: tuple[AxisPlace, ...]
    pointwise: bool

    @property
    def rows(self) -> int:
        """Number of kept positions."""
        return prod(self.kept)

    @property
    def columns(self) -> int:
        """Number of walked positions of one row."""
        return prod(self.walked)

    @cached_property
    def levels(self) -> Mapping[str, str]:
        """For every value: "element" where it varies along walked axes, else "row"."""
        levels: dict[str, str] = {}
        for stmt in self.loop.body:
            level = "element" if self._varies(stmt, levels) else "row"
            for name in (stmt.name, f"{stmt.name}_m2", f"{stmt.name}_sum"):
                levels[name] = level
        return levels

    def _varies(self, stmt: Stmt, levels: Mapping[str, str]) -> bool:
        if stmt.op == "reduce":
            return False
        place = self.places.get(stmt.name)
        gathered = [name for name, _ in place.gathers] if place else []
        names = [*gathered, *(() if stmt.op == "index" else stmt.args)]
        walked = place is not None and any(place.inner)
        return stmt.op == "scan" or walked or any(levels[name] == "element" for name in names)

    def is_element_store(self, at: int) -> bool:
        """Whether store `at` writes along the walked axes."""
        place = self.targets[at]
        gathered = any(self.levels[name] == "element" for name, _ in place.gathers)
        return any(place.inner) or gathered

    def streams(self) -> Iterable[AxisPlace]:
        """The element-level accesses to memory, loads first."""
        for stmt in self.loop.body:
            if stmt.op == "load" and self.levels[stmt.name] == "element":
                yield self.places[stmt.name]
        yield from (p for at, p in enumerate(self.targets) if self.is_element_store(at))

    def moved_bytes(self, place: AxisPlace) -> int:
        """Bytes of the elements that a place visits, each once."""
        return self.span(place) * place.dtype.itemsize_bytes

    def heavy(self) -> list[AxisPlace]:
        """The streams that move at least a quarter of what the largest one moves."""
        streams = list(self.streams())
        most = max(map(self.moved_bytes, streams), default=0)
        return [place for place in streams if 4 * self.moved_bytes(place) >= most]

    def linear(self, place: AxisPlace) -> int | None:
        """The step of the linear position, where a place walks its axes as one; else None."""
        steps, sizes = place.inner, self.walked
        if not any(steps):
            return 0
        for axis in range(len(steps) - 1):
            if not walked_as_one(steps[axis], steps[axis + 1], sizes[axis + 1]):
                return None
        return steps[-1]

    def span(self, place: AxisPlace) -> int:
        """How many different elements a place visits; an upper bound when it gathers."""
        axes = [*zip(self.kept, place.outer, strict=True)]
        axes += [*zip(self.walked, place.inner, strict=True)]
        return prod(size for size, step in axes if step)


def nest_of(loop: Loop, *, apart: int = 0) -> Nest:
    """The loop with its axes merged and ordered.

    Args:
        loop: The loop.
        apart: How many of the last walked axes stay as they are, although they could be merged.

    Raises:
        ValueError: When an axis is empty: there is nothing to run.
    """
    if any(axis.size < 1 for axis in (*loop.outer, *loop.inner)):
        raise ValueError(f"{loop.name}: an axis is empty")
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    raw = {stmt.name: _raw(stmt, loop) for stmt in loop.body}
    walks = {name: walk for name, walk in raw.items() if walk is not None}
    stores = [_of_access(store.access, sizes) for store in loop.stores]
    # Stores come first: where a read and a write of one size disagree, the write is contiguous.
    every = [*stores, *walks.values()]
    scans = any(stmt.op == "scan" for stmt in loop.body)
    pointwise = not loop.inner
    kept = [] if pointwise else [axis.name for axis in loop.outer]
    walked = [axis.name for axis in (loop.outer if pointwise else loop.inner)]
    guide = sorted(every, key=lambda walk: -walk.span(sizes))
    kept = _ordered(kept, sizes, guide)
    walked = [n for n in walked if sizes[n] > 1] if scans else _ordered(walked, sizes, guide)
    split = max(0, len(walked) - apart)
    outer, inner = _merge(kept, sizes, every), _merge(walked[:split], sizes, every)
    inner += [[name] for name in walked[split:]]
    return Nest(
        loop=loop,
        kept=tuple(_size(group, sizes) for group in outer),
        walked=tuple(_size(group, sizes) for group in inner),
        places={name: walk.place(outer, inner) for name, walk in walks.items()},
        targets=tuple(walk.place(outer, inner) for walk in stores),
        pointwise=pointwise,
    )


@dataclass(frozen=True)
class _Walk:
    """An access by axis name, before merging."""

    access: Access
    sizes: Mapping[str, int]

    def step(self, axis: str) -> int:
        return self.access.step(axis)

    def span(self, sizes: Mapping[str, int]) -> int:
        if not self.access.buffer:
            return 0
        moved = prod(size for name, size in sizes.items() if self.step(name))
        return moved * self.access.dtype.itemsize_bytes

    def place(self, outer: Sequence[Sequence[str]], inner: Sequence[Sequence[str]]) -> AxisPlace:
        gathers = [
            (stride.by, stride.step)
            for stride in self.access.strides
            if stride.by not in self.sizes and stride.step
        ]
        return AxisPlace(
            buffer=self.access.buffer,
            dtype=self.access.dtype,
            offset=self.access.offset,
            outer=tuple(self.step(group[-1]) for group in outer),
            inner=tuple(self.step(group[-1]) for group in inner),
            gathers=tuple(gathers),
        )


def _of_access(access: Access, sizes: Mapping[str, int]) -> _Walk:
    return _Walk(access, sizes)


def _raw(stmt: Stmt, loop: Loop) -> _Walk | None:
    """How a statement walks: a load, an index, or a reduction that answers with a position."""
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    if stmt.op == "load" and stmt.access is not None:
        return _Walk(stmt.access, sizes)
    if stmt.op == "index":
        return _Walk(_position([(stmt.args[0], 1)]), sizes)
    if stmt.op == "reduce" and stmt.reduce in _ORDERED:
        steps, step = [], 1
        for axis in reversed(loop.inner):
            steps.append((axis.name, step))
            step *= axis.size
        return _Walk(_position(steps), sizes)
    return None


def _position(steps: Iterable[tuple[str, int]]) -> Access:
    strides = [{"by": by, "step": step} for by, step in steps]
    return Access.model_validate({"buffer": "", "dtype": DType.INT64, "strides": strides})


def _ordered(names: list[str], sizes: Mapping[str, int], guide: Sequence[_Walk]) -> list[str]:
    """Axes longer than one, by falling stride in the biggest access that moves along them."""
    return by_falling_stride(
        (name for name in names if sizes[name] > 1), [walk.step for walk in guide]
    )


def _merge(
    names: Sequence[str], sizes: Mapping[str, int], every: Sequence[_Walk]
) -> list[list[str]]:
    groups: list[list[str]] = []
    for name in names:
        last = groups[-1][-1] if groups else ""
        if last and all(walked_as_one(w.step(last), w.step(name), sizes[name]) for w in every):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _size(group: Sequence[str], sizes: Mapping[str, int]) -> int:
    return prod(sizes[name] for name in group)
