"""Reads of one buffer that differ by constant offsets, as windows that a thread keeps in registers.

Pooling, depthwise convolutions and shifted slices read a buffer at several places that move along
together. Such reads become taps of one window: planes of lines of elements, as the last three
walked axes move through the buffer. Outputs side by side then share most of it. Taps that form no
lattice become a window for each line: right, but with less to share.

A read that may lie in the padding is made on the condition that it does not: comparisons of
positions with constants, which only outputs near an edge can fail. Each holds on one side of an
axis, as a range of positions; where all of them hold, a kernel need not ask. Not here: conditions
on data, and comparisons that mix axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace, Nest
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.types import DType


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


# A line is read as one piece while at most this many elements of it lie unused between outputs.
_SPARSE = 16
# Elements that one window may span for a single output; beyond that registers spill.
_MOST = 512


@dataclass(frozen=True)
class Along:
    """A window along one axis of the tile.

    It spans `span` places, `pitch` elements apart; the next output's begins `step` places on.
    """

    pitch: int
    step: int
    span: int


@dataclass(frozen=True)
class Window:
    """Taps of one buffer; `offset` is the first element that the output at zero reads.

    `steps` are elements moved along each walked axis; `taps` names the load statements with their
    plane, line and place. No tap lies outside the `extent` first elements of the buffer, and lines
    begin at multiples of `aligned` elements, but for `offset`.
    """

    buffer: str
    dtype: DType
    offset: int
    steps: tuple[int, ...]
    planes: Along
    lines: Along
    places: Along
    taps: Mapping[str, tuple[int, int, int]]
    extent: int
    aligned: int


@dataclass(frozen=True)
class Stencil:
    """The windows of a pointwise nest, whose last three walked axes make the tile."""

    nest: Nest
    edges: Edges
    windows: tuple[Window, ...]

    @property
    def overlaps(self) -> bool:
        """Whether neighbours have something to share: elements, or the vectors they lie in."""
        tile = min(4, self.sizes[0]), min(8, self.sizes[1]), min(8, self.sizes[2])
        return any(
            _dense(window) or prod(held(window, tile)) < prod(tile) * prod(held(window, (1, 1, 1)))
            for window in self.windows
            if window.steps[-1] and len(window.taps) > 1
        )

    @property
    def axes(self) -> tuple[int | None, int | None, int | None]:
        """The walked axes of planes, lines and places; None where the nest has fewer."""
        last = len(self.nest.walked) - 1
        z, y, x = (at if at >= 0 else None for at in (last - 2, last - 1, last))
        return z, y, x

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Outputs along the three axes of the tile."""
        z, y, x = (1 if at is None else self.nest.walked[at] for at in self.axes)
        return z, y, x


def _dense(window: Window) -> bool:
    """Whether outputs step over several elements of a line and read most of them."""
    places, used = window.places, len({place for _, _, place in window.taps.values()})
    return places.pitch == 1 and places.step > 1 and 2 * used > min(places.step, places.span)


def stencil_of(nest: Nest) -> Stencil:
    """The windows of a pointwise nest whose tile axes have not been merged."""
    edges = Edges(nest)
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for stmt in nest.loop.body:
        place = nest.places.get(stmt.name)
        if place is not None and stmt.name in edges.within and _moves(place):
            groups.setdefault((place.buffer, place.inner), []).append(stmt.name)
    bare = Stencil(nest, edges, ())
    windows = [one for names in groups.values() for one in _windows(bare, names)]
    return Stencil(nest, edges, tuple(windows))


def _moves(place: AxisPlace) -> bool:
    return not place.gathers and all(step >= 0 for step in place.inner) and any(place.inner[-3:])


def _windows(bare: Stencil, names: Sequence[str]) -> list[Window]:
    """One window for a group, or one for each of its lines, or one for each tap."""
    whole = _window(bare, names)
    if whole is not None:
        return [whole]
    place = bare.nest.places
    line = _order(bare, place[names[0]])[-1]
    reach = bare.sizes[line] * _steps(bare, place[names[0]])[line] // 2
    found = []
    for part in _clusters((place[name].offset for name in names), reach):
        members = [name for name in names if place[name].offset in part]
        one = _window(bare, members)
        found += [one] if one else [w for name in members if (w := _window(bare, [name]))]
    return found


def _steps(bare: Stencil, place: AxisPlace) -> tuple[int, int, int]:
    z, y, x = (0 if at is None else place.inner[at] for at in bare.axes)
    return z, y, x


def _order(bare: Stencil, place: AxisPlace) -> list[int]:
    """The axes of the tile along which a place moves, by falling step."""
    steps = _steps(bare, place)
    return sorted((at for at in range(3) if steps[at]), key=lambda at: -steps[at])


def _window(bare: Stencil, names: Sequence[str]) -> Window | None:
    """The taps as one lattice; None where they form none that is small enough.

    Taps further apart than half of what all outputs move through along the finer axes are taken
    to lie apart along a coarser one. A wrong guess costs reuse, never an answer.
    """
    place = bare.nest.places[names[0]]
    at = {name: bare.nest.places[name].offset for name in names}
    steps, order = _steps(bare, place), _order(bare, place)
    rest = {offset: offset - min(at.values()) for offset in at.values()}
    alongs = [Along(0, 0, 1)] * 3
    found: dict[int, dict[int, int]] = {offset: {} for offset in rest}
    for rank, axis in enumerate(order):
        finer = [bare.sizes[a] * steps[a] // 2 for a in order[rank + 1 :]]
        parts = _clusters(rest.values(), max(finer)) if finer else [[v] for v in rest.values()]
        starts = {value: min(part) for part in parts for value in part}
        whole = axis == 2 and steps[axis] <= _SPARSE
        alongs[axis] = _along(steps[axis], set(starts.values()), whole=whole)
        for offset, value in rest.items():
            found[offset][axis] = starts[value] // alongs[axis].pitch
        rest = {offset: value - starts[value] for offset, value in rest.items()}
    planes, lines, places = alongs
    if planes.span * lines.span * places.span > _MOST or max(planes.span, lines.span) > 64:
        return None
    return Window(
        buffer=place.buffer,
        dtype=place.dtype,
        offset=min(at.values()),
        steps=place.inner,
        planes=planes,
        lines=lines,
        places=places,
        taps={name: _tap(found[offset]) for name, offset in at.items()},
        extent=max(0, *(_last(bare, name) for name in names)) + 1,
        aligned=_aligned(place, places, planes, lines),
    )


def _tap(found: Mapping[int, int]) -> tuple[int, int, int]:
    return found.get(0, 0), found.get(1, 0), found.get(2, 0)


def _along(step: int, starts: set[int], *, whole: bool = False) -> Along:
    """The lattice of some starts along an axis of that step; `whole` keeps what lies between."""
    pitch = 1 if whole else gcd(step, *starts)
    return Along(pitch, step // pitch, max(starts) // pitch + 1)


def _clusters(values: Iterable[int], gap: int) -> list[list[int]]:
    """Values in groups whose members are at most `gap` from the next."""
    found: list[list[int]] = []
    for value in sorted(set(values)):
        if found and value - found[-1][-1] <= gap:
            found[-1].append(value)
        else:
            found.append([value])
    return found


def _last(bare: Stencil, name: str) -> int:
    """The furthest element that a tap reads; -1 where its condition never holds."""
    place = bare.nest.places[name]
    ends = list(bare.nest.walked)
    for side in bare.edges.within[name]:
        ends[side.axis] = min(ends[side.axis], side.high)
    if min(ends) < 1 or any(_empty(side) for side in bare.edges.within[name]):
        return -1
    return place.offset + sum((end - 1) * step for end, step in zip(ends, place.inner, strict=True))


def _empty(side: Side) -> bool:
    return side.low >= side.high


def _aligned(place: AxisPlace, places: Along, planes: Along, lines: Along) -> int:
    if places.pitch != 1:
        return 1
    widest = MOVED_BYTES // place.dtype.itemsize_bytes
    return gcd(widest, planes.pitch, lines.pitch, *place.inner[:-1])


def registers(stencil: Stencil, tile: tuple[int, int, int]) -> int:
    """Elements that a thread's windows hold for a tile of outputs (planes, lines, places)."""
    return sum(prod(held(window, tile)) for window in stencil.windows)


def held(window: Window, tile: tuple[int, int, int]) -> tuple[int, int, int]:
    """Planes, lines and places of a window that a tile of outputs reads; what taps skip is not."""
    alongs = (window.planes, window.lines, window.places)
    planes, lines, places = (
        len({tap[at] + turn * along.step for tap in window.taps.values() for turn in range(count)})
        for at, (count, along) in enumerate(zip(tile, alongs, strict=True))
    )
    return planes, lines, places
