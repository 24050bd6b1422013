"""Strategy for loops whose neighbours share reads: pooling, depthwise convolution, shifts.

A thread computes a small tile of neighbouring outputs. It reads the window that covers all of
them once, as aligned vectors, and every output takes its taps from registers. What neighbours
have in common (the maximum of a column of a window, say) the compiler computes once, because
the tile is unrolled. Only tiles at an edge ask where they are.
"""

from __future__ import annotations

from math import prod

from kernelwright.tools.codegen.cuda.families.row_shapes import element_family
from kernelwright.tools.codegen.cuda.families.tiles.strip_code import INDEX, StripCode
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.stencil import Stencil, held, registers
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Emitted, Strategy

NAMES = ("window_strips",)
TITLE = "A tile of outputs a thread, their windows in registers"
# Elements of windows that a thread may hold, and how often a tap is unrolled, at most.
_REGISTERS = 192
_COMFORTABLE = 80
_UNROLLED = 1536


def strategies(case: Case) -> list[Strategy]:
    """The strategy, where some buffer is read at several places."""
    if not fits(case):
        return []
    found = Strategy(
        name=NAMES[0],
        title=TITLE,
        mechanism="A thread reads the window that covers several neighbouring outputs once, as "
        "aligned vectors into registers, and slides over it; tiles inside carry no conditions, "
        "positions are 32 bits wide, and outputs of misaligned rows pass through shared memory.",
        reason="Neighbouring outputs share most of what they read: taken one by one, the nearest "
        "cache moves every input once for each position of the window.",
        category="memory",
        metric="l1 throughput",
        memory="windows in registers",
        compute="fused chain",
        parallel="tile per thread",
        # Beyond a vector's length, steps keep neighbouring threads' reads apart here too: at a
        # step of 11 a fifth of the floor was left on an H200, elsewhere 0.71 to 0.97.
        efficiency=0.9 / (1 + 0.45 * max(0, _spread(case.stencil) - 3)),
    )
    return [found]


def _spread(stencil: Stencil) -> int:
    """Elements of a line that lie between what neighbouring outputs begin with."""
    places = [window.places for window in stencil.windows]
    return max(min(along.step, along.span) - 1 for along in places)


def one_by_one(case: Case) -> float:
    """The share of its speed that a loop keeps when every output reads its own window.

    Reads are repeated for each output that shares them, and steps over several elements spread
    what lanes read. The slopes follow what such kernels lost on an H200
    (benchmarks/results/h200/strategies.md).
    """
    if not fits(case):
        return 1.0
    again = 0.0
    for window in case.stencil.windows:
        alongs = (window.planes, window.lines, window.places)
        needed = prod(min(along.step or 1, along.span) for along in alongs)
        again = max(again, len(window.taps) / needed - 1)
    return 1 / (1 + 0.15 * again + 0.1 * max(0, _spread(case.stencil)))


def fits(case: Case) -> bool:
    """Whether windows overlap, every store follows the tile, and one output's taps are few."""
    stencil = case.stencil
    if not stencil.overlaps or not case.nest.pointwise:
        return False
    nest = stencil.nest
    spread = all(place.inner[-1] and not place.gathers for place in nest.targets)
    return spread and registers(stencil, (1, 1, 1)) <= _REGISTERS


def taps(stencil: Stencil) -> int:
    """Reads that one output makes of windows."""
    return sum(len(window.taps) for window in stencil.windows)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop of windows.

    Raises:
        ValueError: When the loop has none.
    """
    if not fits(case):
        raise ValueError(f"{case.loop.name}: {name} needs reads that neighbours share")
    stencil = case.stencil
    code = StripCode(stencil, prefix.upper())
    tunables = Tunables(prefix)
    depth, rows = shape(case, tunables)
    tunables.add("STORES", (1, 0))
    sizes, nest = stencil.sizes, stencil.nest
    parts = [
        f"ceil_div({size}, {tunables.named(by)})" if by != "1" else str(size)
        for size, by in zip(sizes, (depth, rows, "{VECTOR}"), strict=True)
    ]
    outer = prod(nest.walked[:-3])
    strips = " * ".join([str(outer), *parts] if outer > 1 else parts)
    source = render(
        "strips",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        depth=tunables.named(depth),
        rows=tunables.named(rows),
        sizes=sizes,
        outer=outer,
        code=code,
        index=INDEX,
    )
    grid = tunables.named(f"ceil_div({strips}, {{THREADS}})")
    launch = Launch(f"{prefix}_strips", grid, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def shape(case: Case, tunables: Tunables) -> tuple[str, str]:
    """Declares threads and tile; the texts of its depth and rows."""
    stencil = case.stencil
    wide = min(_neighbours(stencil), stencil.sizes[2])
    tunables.add("THREADS", (256, 128, 512))
    wides = [n for n in powers(1, 8) if n < 2 * stencil.sizes[2] and _held(stencil, (1, 1, n))]
    tunables.add("VECTOR", first(wide, wides))
    rows = [n for n in powers(1, 8) if n < 2 * stencil.sizes[1] and _held(stencil, (1, n, wide))]
    deep = [n for n in powers(1, 4) if n < 2 * stencil.sizes[0] and _held(stencil, (n, 1, wide))]
    best = min(rows, key=lambda n: _lines(stencil, (1, n, wide)))
    names = []
    if _lines(stencil, (1, rows[-1], wide)) < _lines(stencil, (1, 1, wide)):
        tunables.add("ROWS", first(best, rows))
        names.append("ROWS")
    if _lines(stencil, (deep[-1], 1, wide)) < _lines(stencil, (1, 1, wide)):
        tunables.add("DEPTH", deep)
        names.append("DEPTH")
    tile = " * ".join(f"{{{name}}}" for name in ("VECTOR", *names))
    most = max(_UNROLLED // taps(stencil), wide)
    tunables.require(f"{tile} <= {min(64, most)}")
    # Strips of misaligned rows pass through shared memory.
    stored = sum(place.dtype.itemsize_bytes for place in stencil.nest.targets)
    tunables.require(f"{{THREADS}} * {{VECTOR}} * {stored} <= {48 * KIB}")
    depth, tall = (f"{{{name}}}" if name in names else "1" for name in ("DEPTH", "ROWS"))
    return depth, tall


def _held(stencil: Stencil, tile: tuple[int, int, int]) -> bool:
    """Whether a thread can hold the windows of a tile; of a single output it must."""
    return prod(tile) == 1 or registers(stencil, tile) <= _REGISTERS


def _lines(stencil: Stencil, tile: tuple[int, int, int]) -> float:
    """Lines read for each output; tiles that a thread cannot hold cost as many as they spill."""
    moving = [window for window in stencil.windows if window.steps[-1]]
    lines = sum(a * b for a, b, _ in (held(window, tile) for window in moving))
    beyond = max(1.0, registers(stencil, tile) / _COMFORTABLE) if prod(tile[:2]) > 1 else 1.0
    return lines / prod(tile[:2]) * beyond


def _neighbours(stencil: Stencil) -> int:
    """Outputs side by side such that neighbouring threads' reads touch each other."""
    wide = max(stencil.windows, key=lambda w: (len(w.taps), w.dtype.itemsize_bytes))
    step = max(1, wide.places.step * wide.places.pitch)
    return max(1, MOVED_BYTES // wide.dtype.itemsize_bytes // step)


STRIP_FAMILY = element_family(NAMES, strategies, emit)
