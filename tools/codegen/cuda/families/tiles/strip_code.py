"""The pieces of a kernel whose threads compute tiles of neighbouring outputs.

The skeleton owns the loops over the tile; it supplies `i0`, `i1`, ... (the tile's first position
along each walked axis), and inside the tile `dz`, `dy` and `k` and the positions `p0`, `p1`, ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from kernelwright.tools.codegen.cuda.printing.expressions import c_type, expression, value_type
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace
from kernelwright.tools.codegen.cuda.printing.printing import INT_LIMIT, SLACK, convert_from_memory
from kernelwright.tools.codegen.cuda.printing.schedule import uses
from kernelwright.tools.codegen.cuda.printing.stencil import Side, Stencil, Window
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, narrow_values
from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.codegen.ir.rewrites import rounded_alone
from kernelwright.tools.types import DType

INDEX = "int"


@dataclass(frozen=True)
class WindowCode:
    """A window as text: where a tile's begins, and its sizes as C++ expressions of the tile."""

    name: str
    type: str
    buffer: str
    index: str
    start: str
    offset: int
    aligned: int
    window: Window


@dataclass(frozen=True)
class StoreCode:
    """A store as text: its strip's address, the value, and how wide its chunks may be."""

    name: str
    type: str
    buffer: str
    index: str
    address: str
    value: str
    chunk: int
    step: int
    itemsize: int

    @property
    def widest(self) -> int:
        """Elements of the widest access."""
        return MOVED_BYTES // self.itemsize


class StripCode:
    """Prints the statements of a stencil.

    Args:
        stencil: The stencil.
        prefix: Of tunables.
    """

    # What the skeleton calls the tile's sizes, and the positions that it stores at.
    tile_names = ("DEPTH", "ROWS", "VECTOR")
    stored = "q"

    def __init__(self, stencil: Stencil, prefix: str) -> None:
        self.stencil, self.nest, self.prefix = stencil, stencil.nest, prefix
        self._narrow = narrow_values(stencil.nest)
        self._types = {stmt.name: stmt.dtype for stmt in self.nest.loop.body}
        self._alone = rounded_alone(self.nest.loop)
        self._taps = {
            name: (at, tap)
            for at, w in enumerate(stencil.windows)
            if self.holds(w)
            for name, tap in w.taps.items()
        }

    def holds(self, window: Window) -> bool:
        """Whether the kernel brings a window near; else it reads the window's taps one by one."""
        return bool(window.taps)

    @property
    def count_type(self) -> str:
        """The type in which tiles are counted."""
        outputs = 1
        for size in self.nest.walked:
            outputs *= size
        return "unsigned int" if outputs < INT_LIMIT - SLACK else "unsigned long long"

    @property
    def strays(self) -> bool:
        """Whether something is read output by output, so that none may lie beyond the end."""
        return any(
            stmt.op == "load" and stmt.name not in self._taps
            for stmt in self._live
            if stmt.name in self._varying
        )

    @property
    def axes(self) -> int:
        """How many walked axes there are."""
        return len(self.nest.walked)

    @property
    def tile_axes(self) -> set[int]:
        """The walked axes along which a tile has several outputs."""
        return {at for at in self.stencil.axes if at is not None}

    @cached_property
    def windows(self) -> list[WindowCode]:
        """Every window."""
        return [
            WindowCode(
                name=f"w{at}",
                type=c_type(window.dtype),
                buffer=f"g_{window.buffer}",
                index=self._index(window.offset, window.steps),
                start=self._sum(self._index(window.offset, window.steps), window.steps, "i"),
                offset=window.offset,
                aligned=window.aligned,
                window=window,
            )
            for at, window in enumerate(self.stencil.windows)
        ]

    @cached_property
    def inside(self) -> list[str]:
        """What holds of a tile whose outputs fail no condition."""
        found = []
        for axis, (low, high) in sorted(self.stencil.edges.inside().items()):
            if low > 0:
                found.append(f"i{axis} >= {low}")
            if high < self.nest.walked[axis]:
                found.append(f"i{axis} + {self._tile(axis)} <= {high}")
        return found

    def _tile(self, axis: int) -> str:
        names = dict(zip(self.stencil.axes, self.tile_names, strict=True))
        return names.get(axis, "1")

    @cached_property
    def _varying(self) -> frozenset[str]:
        """The statements whose value may differ within a tile."""
        return self._moving(self.tile_axes)

    def _moving(self, axes: set[int]) -> frozenset[str]:
        """The statements whose value may differ along some axes."""
        found = set[str]()
        for stmt in self.nest.loop.body:
            place = self.nest.places.get(stmt.name)
            steps = () if place is None else place.inner
            names = uses(stmt, self.nest)
            moved = any(step and at in axes for at, step in enumerate(steps))
            if moved or any(name in found for name in names):
                found.add(stmt.name)
        return frozenset(found)

    @cached_property
    def _live(self) -> tuple[Stmt, ...]:
        """What is computed: comparisons that have become sides need nothing any more."""
        found: set[str] = set()
        waiting = [store.value for store in self.nest.loop.stores]
        while waiting:
            stmt = self.nest.loop.stmt(waiting.pop())
            if stmt.name not in found:
                found.add(stmt.name)
                waiting += [] if stmt.name in self.stencil.edges.sides else uses(stmt, self.nest)
        return tuple(stmt for stmt in self.nest.loop.body if stmt.name in found)

    @cached_property
    def before(self) -> list[str]:
        """Values that the whole tile shares."""
        return [self._line(s, "i") for s in self._live if s.name not in self._varying]

    @cached_property
    def body(self) -> list[str]:
        """Values of one output."""
        return [self._line(s, "p") for s in self._live if s.name in self._varying]

    @cached_property
    def stores(self) -> list[StoreCode]:
        """Every store."""
        return [self._store(at) for at in range(len(self.nest.targets))]

    def _line(self, stmt: Stmt, letter: str) -> str:
        return f"const {self._type(stmt)} v_{stmt.name} = {self._value(stmt, letter)};"

    def _type(self, stmt: Stmt) -> str:
        return "int" if stmt.name in self._narrow else value_type(stmt.dtype)

    def _value(self, stmt: Stmt, letter: str) -> str:
        side = self.stencil.edges.sides.get(stmt.name)
        if side is not None:
            return self._side(side, letter)
        if stmt.op == "load":
            return self._load(stmt, letter)
        if stmt.op == "index":
            place = self.nest.places[stmt.name]
            return self._sum(
                "int" if stmt.name in self._narrow else "long long", place.inner, letter
            )
        if stmt.name in self._narrow and stmt.op == "const":
            return str(stmt.value)
        args = [(self._argument(stmt, name), self._types[name]) for name in stmt.args]
        return expression(stmt, args, alone=stmt.name in self._alone)

    def _argument(self, stmt: Stmt, name: str) -> str:
        """An argument; narrow integers become wide where they meet wide ones."""
        ints = [n for n in stmt.args if self._types[n] is DType.INT64]
        together = all(n in self._narrow for n in ints)
        stays = stmt.name in self._narrow or (stmt.dtype is not DType.INT64 and together)
        return f"v_{name}" if stays or name not in self._narrow else f"(long long)v_{name}"

    def _side(self, side: Side, letter: str) -> str:
        at, size = f"{letter}{side.axis}", self.nest.walked[side.axis]
        asked = [f"{at} >= {side.low}"] if side.low > 0 else []
        asked += [f"{at} < {side.high}"] if side.high < size else []
        if not asked:
            return "true"
        text = " && ".join(asked)
        return f"!EDGE || ({text})" if letter == "p" else text

    def _load(self, stmt: Stmt, letter: str) -> str:
        place = self.nest.places[stmt.name]
        text = convert_from_memory(self._source(stmt, place, letter), place.dtype, stmt.dtype)
        zero = f"({value_type(stmt.dtype)})0"
        return f"v_{stmt.args[0]} ? {text} : {zero}" if stmt.args else text

    def _source(self, stmt: Stmt, place: AxisPlace, letter: str) -> str:
        if stmt.name in self._taps:
            window, (plane, line, element) = self._taps[stmt.name]
            one = self.stencil.windows[window]
            alongs = zip(("dz", "dy", "k"), (one.planes, one.lines, one.places), strict=True)
            steps = [
                f"{name} * {along.step} + {at}" if along.step else str(at)
                for (name, along), at in zip(alongs, (plane, line, element), strict=True)
            ]
            return self.tap(window, steps)
        index = self._index(place.offset, place.inner)
        terms = [str(place.offset)] if place.offset else []
        terms.append(self._sum(index, place.inner, letter))
        terms += [f"v_{name} * {step}LL" for name, step in place.gathers]
        return f"kw::load_one<kw::DEFAULT>(g_{place.buffer} + ({' + '.join(terms)}))"

    def tap(self, window: int, at: list[str]) -> str:
        """An element of a window, by its plane, line and place."""
        return f"w{window}[{at[0]}][{at[1]}][SHIFT{window} + {at[2]}]"

    def _sum(self, index: str, steps: tuple[int, ...], letter: str) -> str:
        cast = "(long long)" if index == "long long" else ""
        terms = [
            f"{cast}{letter}{axis}" + (f" * {step}" if step != 1 else "")
            for axis, step in enumerate(steps)
            if step
        ]
        return " + ".join(terms) or "0"

    def _index(self, offset: int, steps: tuple[int, ...]) -> str:
        """The type that holds every position that tiles visit, also those beyond an edge."""
        reach = abs(offset) + sum(
            abs(step) * (size + 64) for size, step in zip(self.nest.walked, steps, strict=True)
        )
        return "int" if reach < INT_LIMIT - SLACK else "long long"

    def _store(self, at: int) -> StoreCode:
        place, value = self.nest.targets[at], self.nest.loop.stores[at].value
        index, have = self._index(place.offset, place.inner), value_type(self._types[value])
        stored = c_type(place.dtype)
        name = f"v_{value}"
        widest = MOVED_BYTES // place.dtype.itemsize_bytes
        chunk = gcd(widest, place.offset, *place.inner[:-1], self.nest.walked[-1])
        start = self._sum(index, place.inner, self.stored)
        return StoreCode(
            name=f"out_{at}",
            type=stored,
            buffer=f"g_{place.buffer}",
            index=index,
            address=f"{place.offset} + {start}" if place.offset else start,
            value=name
            if have == stored and value not in self._narrow
            else f"kw::to<{stored}>({name})",
            chunk=chunk,
            step=place.inner[-1],
            itemsize=place.dtype.itemsize_bytes,
        )
