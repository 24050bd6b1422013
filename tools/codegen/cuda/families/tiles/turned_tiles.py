"""The pieces of a kernel that turns tiles: values in the order of reads, stores in theirs.

A thread takes groups of neighbours across, along what is read. Loads that lie there side by side
are vectors of a group: those that stream by are asked for ahead of all use, those that many tiles
share (a bias) beside it. Others go element by element: what is read on a condition, found by a
gather, or at a pool's steps. Lines of a turned tile are stored in whole vectors, in windows of
sectors, or one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from kernelwright.tools.codegen.cuda.families.row_shapes import SECTOR_BYTES
from kernelwright.tools.codegen.cuda.families.tiles.strip_code import StoreCode, StripCode
from kernelwright.tools.codegen.cuda.printing.expressions import c_type
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace, Nest
from kernelwright.tools.codegen.cuda.printing.stencil import Edges, Stencil, Window
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Stmt


def in_windows(stores: Sequence[StoreCode], along: int) -> bool:
    """Whether lines of `along` elements begin at odd places, and are long enough for windows.

    A sector that two tiles store in parts costs the cache two requests: planes of 513 x 513
    took 1.46 ms where those of 512 x 512 took 1.06 (an H200,
    benchmarks/timing/convolution_tails.py).
    """
    odd = any(store.chunk < store.widest for store in stores)
    return odd and along > 8 * window_slide(stores)


def window_slide(stores: Sequence[StoreCode]) -> int:
    """Positions that a tile computes besides its own: a sector of the smallest elements."""
    return SECTOR_BYTES // min(store.itemsize for store in stores)


def tiles(along: int, side: str, slide: int) -> str:
    """Tiles along lines, over the tunable `side` in braces; `slide` is 0 without windows."""
    if not slide:
        return f"ceil_div({along}, {{{side}}})"
    return f"ceil_div({along + slide - 1}, ({{{side}}} - {slide}))"


def store_hints(stores: Sequence[StoreCode], *, windows: bool) -> tuple[int, int]:
    """Streaming stores first where whole vectors fill sectors.

    Of sectors that two warps write in parts the cache makes one.
    """
    return (1, 0) if windows or all(store.chunk > 1 for store in stores) else (0, 1)


# Elements a group, at most: a thread computes several of them at a time.
_MOST = 8


@dataclass(frozen=True)
class LoadCode:
    """A load of a whole group as text."""

    name: str
    type: str
    address: str


class TurnedCode(StripCode):
    """Prints the statements of one output, at positions `p0`, `p1`, ..., as number `k` of a group.

    Args:
        nest: The nest.
        across: The axes that are read along, the one along which groups lie last.
        along: The axes that are stored along.
        prefix: Of tunables.
    """

    stored = "p"

    def __init__(
        self, nest: Nest, across: tuple[int, ...], along: tuple[int, ...], prefix: str
    ) -> None:
        super().__init__(Stencil(nest, Edges(nest), ()), prefix)
        self.across_axes, self.along_axes = across, along
        self.across = across[-1]

    def holds(self, window: Window) -> bool:
        """Nothing: there are no windows."""
        return False

    @property
    def tile_axes(self) -> set[int]:
        """What is read along, and what is stored along."""
        return {*self.across_axes, *self.along_axes}

    @property
    def across_size(self) -> int:
        """Positions that are read along."""
        return prod(self.nest.walked[axis] for axis in self.across_axes)

    @property
    def along_size(self) -> int:
        """Positions that are stored along."""
        return prod(self.nest.walked[axis] for axis in self.along_axes)

    @cached_property
    def shared(self) -> list[str]:
        """Values that a group shares."""
        return [self._line(s, "p") for s in self._live if s.name in self._varying - self._single]

    @cached_property
    def body(self) -> list[str]:
        """Values of one output that its group does not share."""
        return [self._line(s, "p") for s in self._live if s.name in self._single]

    @cached_property
    def _single(self) -> frozenset[str]:
        """The statements whose value may differ within a group."""
        return self._moving({self.across})

    @cached_property
    def slides(self) -> bool:
        """Whether lines are stored in windows."""
        return in_windows(self.stores, self.along_size)

    @property
    def slide(self) -> int:
        """Positions that a tile computes besides its own."""
        return window_slide(self.stores)

    @property
    def positions(self) -> list[str]:
        """Lines that turn `at_across` and `at_along` into positions along axes."""
        return [
            *self._decoded(self.across_axes, "across"),
            *self._decoded(self.along_axes, "along"),
        ]

    def _decoded(self, axes: tuple[int, ...], name: str) -> list[str]:
        lines = []
        for number, axis in enumerate(axes):
            inner = prod(self.nest.walked[other] for other in axes[number + 1 :])
            text = f"at_{name}" if len(axes) == 1 else f"(unsigned int)at_{name}"
            text += f" / {inner}u" if inner > 1 else ""
            text += f" % {self.nest.walked[axis]}u" if number else ""
            lines.append(f"const int p{axis} = (int)({text});")
        return lines

    @cached_property
    def width(self) -> int:
        """The most neighbours across that a group can have, by whatever moves much."""
        if any(stmt not in self._streams for stmt in self._heavy):
            return 1
        narrowest = min((self._fitting(stmt, _MOST) for stmt in self._streams), default=1)
        return min(MOVED_BYTES // self.widest, narrowest)

    @cached_property
    def read_bytes(self) -> int:
        """Bytes that an output reads of everything that moves much."""
        return sum(self.itemsize(stmt) for stmt in self._heavy)

    @property
    def widest(self) -> int:
        """Bytes of the largest element that streams by."""
        return max((self.itemsize(stmt) for stmt in self._streams), default=1)

    @cached_property
    def ahead(self) -> list[LoadCode]:
        """The loads that stream by."""
        return [self._group(stmt, "ahead") for stmt in self._streams]

    @cached_property
    def beside(self) -> list[LoadCode]:
        """The loads of what stays near."""
        return [self._group(stmt, "beside") for stmt in self._near]

    def itemsize(self, stmt: Stmt) -> int:
        """Bytes of an element in memory."""
        return self.nest.places[stmt.name].dtype.itemsize_bytes

    @cached_property
    def _loads(self) -> list[Stmt]:
        """The loads of which a tile has several elements."""
        return [s for s in self._live if s.op == "load" and s.name in self._varying]

    @cached_property
    def _heavy(self) -> list[Stmt]:
        """Of these, what moves much."""
        heaviest = max((self._moved(stmt) for stmt in self._loads), default=0)
        return [stmt for stmt in self._loads if 4 * self._moved(stmt) >= heaviest]

    @cached_property
    def _streams(self) -> list[Stmt]:
        """Of these, what lies side by side."""
        return [stmt for stmt in self._heavy if self._fitting(stmt, _MOST)]

    @cached_property
    def _near(self) -> list[Stmt]:
        """Of what moves little, what fits whole groups."""
        rest = [stmt for stmt in self._loads if stmt not in self._heavy]
        return [stmt for stmt in rest if self._fitting(stmt, self.width) == self.width > 1]

    def _moved(self, stmt: Stmt) -> int:
        return self.nest.span(self.nest.places[stmt.name]) * self.itemsize(stmt)

    def _fitting(self, stmt: Stmt, most: int) -> int:
        """The most neighbours across that one access of this load can bring; 0 if not any."""
        place = self.nest.places[stmt.name]
        if stmt.args or place.gathers or place.inner[self.across] != 1:
            return 0
        others = [step for at, step in enumerate(place.inner) if at != self.across]
        return gcd(most, self.nest.walked[self.across], place.offset, *others)

    def _group(self, stmt: Stmt, kind: str) -> LoadCode:
        place = self.nest.places[stmt.name]
        return LoadCode(
            f"{kind}_{stmt.name}", c_type(place.dtype), f"g_{place.buffer} + ({self._at(place)})"
        )

    def _at(self, place: AxisPlace) -> str:
        start = self._sum(self._index(place.offset, place.inner), place.inner, "p")
        return f"{place.offset} + {start}" if place.offset else start

    def _source(self, stmt: Stmt, place: AxisPlace, letter: str) -> str:
        if stmt in self._streams:
            return f"ahead_{stmt.name}[u][k]"
        if stmt in self._near:
            return f"beside_{stmt.name}[k]"
        return super()._source(stmt, place, letter)
