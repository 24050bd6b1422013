"""Strategy for windows whose neighbours begin far apart: their lines staged in shared memory.

Where outputs step over several elements of a line, or windows are taller than a thread can hold,
a thread that reads its own window reads scattered. Here a block brings the lines that a tile of
outputs needs into shared memory, as vectors next to each other, and every output takes its taps
from there, at the step of the window. Steps that are even would meet in the banks: then lines are
spread, one free bank in 32. The pieces of such a kernel are printed here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from kernelwright.tools.codegen.cuda.families.row_shapes import element_family, under_way
from kernelwright.tools.codegen.cuda.families.tiles import strips
from kernelwright.tools.codegen.cuda.families.tiles.strip_code import StripCode, WindowCode
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.stencil import Along, Stencil, Window
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Emitted, Strategy


def stageable(window: Window) -> bool:
    """Whether a window's outputs lie along its lines, whose elements are next to each other."""
    return window.places.pitch == 1 and window.places.step > 0 and window.steps[-1] > 0


@dataclass(frozen=True)
class Staged(WindowCode):
    """A window in shared memory: `steady` if all its lines begin alike within a vector."""

    vector: int
    steady: bool


class StagedCode(StripCode):
    """Prints the statements of a stencil whose taps are read from staged lines."""

    tile_names = ("DEPTH", "ROWS", "WIDTH")
    stored = "p"

    def holds(self, window: Window) -> bool:
        """Only what can be staged."""
        return stageable(window)

    @cached_property
    def staged(self) -> list[Staged]:
        """The windows that are staged."""
        return [_staged(code) for code in self.windows if stageable(code.window)]

    def tap(self, window: int, at: list[str]) -> str:
        """An element in shared memory; a line that begins within a vector is shifted by that."""
        (code,) = [one for one in self.staged if one.name == f"w{window}"]
        name, (plane, line, place) = code.name, at
        row = f"(({plane}) * LINES_{name} + ({line})) * ROOM_{name}"
        shift = f"shift_{name}" if code.steady else self._shift(code, plane, line)
        return f"{name}[{row} + kw::line_slot<SPREAD, {code.type}>({shift} + {place})]"

    def _shift(self, code: Staged, plane: str, line: str) -> str:
        """Where a line begins within its first vector."""
        g, kind = code.window, f"({code.index})"
        moved = f"{kind}({plane}) * {g.planes.pitch} + {kind}({line}) * {g.lines.pitch}"
        start = f"from_{code.name} + {moved}"
        return f"(SPREAD ? 0 : (int)(({start}) & {code.vector - 1}))"


def _staged(code: WindowCode) -> Staged:
    vector = MOVED_BYTES // code.window.dtype.itemsize_bytes
    steady = all(along.pitch % vector == 0 for along in (code.window.planes, code.window.lines))
    return Staged(**vars(code), vector=vector, steady=steady)


NAMES = ("window_lines",)
TITLE = "Lines of windows staged in shared memory by the block"
# Room that a block may take, so that several share a multiprocessor, and banks of four bytes.
_ROOM = 48 * KIB
_GOOD_ROOM = 24 * KIB
_BANK_BYTES = 4
# Outputs of a good tile, where they fit.
_TILE = 512
_NARROWEST = 32
# Reads of one output that a kernel spells out.
_MOST_TAPS = 512


def strategies(case: Case) -> list[Strategy]:
    """The strategy, where a window's lines can be staged."""
    if not fits(case):
        return []
    return [
        Strategy(
            name=NAMES[0],
            title=TITLE,
            mechanism="A block copies the lines that its tile of outputs needs into shared memory, "
            "as 16-byte vectors side by side, and each output takes its taps from there; where the "
            "step is even the lines are spread over the banks.",
            reason="Outputs that begin several elements apart make a warp's reads scattered: each "
            "moves whole sectors for four bytes, and the nearest cache must hold them until all "
            "are used.",
            category="memory",
            metric="l1 throughput",
            memory="windows in shared memory",
            compute="fused chain",
            parallel="tile per block",
            efficiency=_efficiency(case),
        )
    ]


def _efficiency(case: Case) -> float:
    """The share of bandwidth to expect: every tap is one more access to shared memory.

    The slope follows eleven problems on an H200, from 0.97 of the floor where windows do not
    overlap to 0.29 at 21 taps for 8 bytes (benchmarks/results/h200/strategies.md).
    """
    stencil = case.stencil
    moved = sum(place.dtype.itemsize_bytes for place in stencil.nest.targets)
    for window in stencil.windows:
        alongs = (window.planes, window.lines, window.places)
        needed = prod(min(along.step or 1, along.span) for along in alongs)
        moved += needed * window.dtype.itemsize_bytes
    share = 0.97 / (1 + 0.8 * max(0.0, strips.taps(stencil) / moved - 0.25))
    tunables = Tunables("x")
    _tile(stencil, tunables)
    tile = [tunables.best(name) for name in ("DEPTH", "ROWS", "WIDTH")]
    filled = prod(min(n, size) for n, size in zip(tile, stencil.sizes, strict=True))
    return round(share * under_way(case, tunables.best("THREADS"), filled * moved), 4)


def fits(case: Case) -> bool:
    """Whether some window has several taps, lines to stage, and room for the smallest tile."""
    if not case.nest.pointwise:
        return False
    stencil = case.stencil
    windows = [window for window in stencil.windows if stageable(window)]
    if not any(len(window.taps) > 1 for window in windows) or strips.taps(stencil) > _MOST_TAPS:
        return False
    follows = all(place.inner[-1] and not place.gathers for place in stencil.nest.targets)
    blocks = prod(stencil.sizes) * prod(stencil.nest.walked[:-3])
    return follows and blocks < 1 << 31 and _room(windows, (1, 1, 32)) <= _ROOM


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop of windows.

    Raises:
        ValueError: When no window can be staged.
    """
    if not fits(case):
        raise ValueError(f"{case.loop.name}: {name} needs windows whose lines fit shared memory")
    stencil = case.stencil
    code = StagedCode(stencil, prefix.upper())
    tunables = Tunables(prefix)
    depth, rows = _tile(stencil, tunables)
    tunables.add("UNROLL", (8, 4, 2)).add("LOADS", (0, 1))
    nest = stencil.nest
    source = render(
        "staged",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        depth=tunables.named(depth),
        rows=tunables.named(rows),
        sizes=stencil.sizes,
        code=code,
    )
    parts = [
        f"ceil_div({size}, {tunables.named(by)})" if by != "1" else str(size)
        for size, by in zip(stencil.sizes, (depth, rows, "{WIDTH}"), strict=True)
    ]
    outer = prod(nest.walked[:-3])
    grid = " * ".join([str(outer), *parts] if outer > 1 else parts)
    launch = Launch(f"{prefix}_staged", grid, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def _tile(stencil: Stencil, tunables: Tunables) -> tuple[str, str]:
    """Declares threads and tile; the texts of its depth and rows."""
    windows = [window for window in stencil.windows if stageable(window)]
    tunables.add("THREADS", (128, 64, 256))
    names = []
    rows = _shared(stencil.sizes[1], [window.lines for window in windows], 8)
    deep = _shared(stencil.sizes[0], [window.planes for window in windows], 4)
    tall = max((n for n in rows if n <= 4), default=1)
    if len(rows) == 1 and stencil.sizes[2] <= _TILE // 2:
        # One short line is too little for a block: it would wait for memory most of its time. Not
        # so where windows are large: an average over 11 x 11 took 3.94 ms when a block had one
        # line of outputs, and 4.33 with two, of which half as many blocks fit a multiprocessor.
        rows = [n for n in powers(1, 8) if n < 2 * stencil.sizes[1]]
        small = (n for n in rows if _room(windows, (1, n, _NARROWEST)) <= _GOOD_ROOM)
        tall = max((n for n in small if n * stencil.sizes[2] <= _TILE), default=1)
    widths = [n for n in powers(_NARROWEST, 512) if n < 2 * max(32, stencil.sizes[2])]
    fitting = [n for n in widths if _room(windows, (1, tall, n)) <= _GOOD_ROOM]
    tunables.add("WIDTH", first(min(_TILE // tall, max(fitting, default=32)), widths))
    if len(rows) > 1:
        tunables.add("ROWS", first(tall, rows))
        names.append("ROWS")
    if len(deep) > 1:
        tunables.add("DEPTH", deep)
        names.append("DEPTH")
    tunables.add("SPREAD", (1, 0) if any(_meets(window) for window in windows) else (0, 1))
    depth, high = (f"{{{name}}}" if name in names else "1" for name in ("DEPTH", "ROWS"))
    room = " + ".join(_room_text(window, depth, high) for window in windows)
    # Spread lines take one element more in 32, and up to 32 for rounding.
    tunables.require(f"({room}) * 9 <= {_ROOM} * 8")
    return depth, high


def _shared(size: int, alongs: list[Along], most: int) -> list[int]:
    """Outputs along an axis that may lie in one tile: several of them share what overlaps."""
    overlap = any(along.step < along.span for along in alongs)
    return [n for n in powers(1, most) if n < 2 * size] if overlap else [1]


def _meets(window: Window) -> bool:
    """Whether neighbouring lanes' taps meet in a bank several times over."""
    words = max(1, window.places.step * window.dtype.itemsize_bytes // _BANK_BYTES)
    return gcd(words, 32) > 2


def _room(windows: list[Window], tile: tuple[int, int, int]) -> int:
    """Bytes of shared memory that a tile takes, but for what spreading adds."""
    total = 0
    for window in windows:
        alongs = (window.planes, window.lines, window.places)
        extents = [
            (count - 1) * along.step + along.span for count, along in zip(tile, alongs, strict=True)
        ]
        extents[-1] += 2 * MOVED_BYTES
        total += prod(extents) * window.dtype.itemsize_bytes
    return total


def _room_text(window: Window, depth: str, rows: str) -> str:
    """The same as an expression over tunables."""
    parts = [str(window.dtype.itemsize_bytes)]
    for by, along in ((depth, window.planes), (rows, window.lines)):
        steps = f" + ({by} - 1) * {along.step}" if by != "1" and along.step else ""
        parts.append(f"({along.span}{steps})")
    step, span = window.places.step, window.places.span
    parts.append(f"(({{WIDTH}} - 1) * {step} + {span + 2 * MOVED_BYTES})")
    return " * ".join(parts)


LINE_FAMILY = element_family(NAMES, strategies, emit)
