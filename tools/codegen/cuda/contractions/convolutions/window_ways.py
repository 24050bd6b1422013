"""Ways to pack and to multiply a convolution, and how long each of them takes.

A layout says which positions of the window are channels and how wide the lines of a tile are; a way
adds the tile, the taps of a step, the warpgroups and what is held. The product takes the most of
what products, copies and stores take, and packing what its bytes do. Elements of two parts are
brought twice, multiplied three times, and have totals beside their sums. Constants are those of an
H200; not modelled: clocks that fall under load, and what is done to results before they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.folds import Folding, FoldPrinter, folding_of
from kernelwright.tools.codegen.cuda.contractions.windows import Direction, Windows, windows_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.roofline import statement_flops
from kernelwright.tools.types import DType

# Rows (outputs) by columns of a tile, which one warpgroup multiplies.
TILES = (
    (128, 128), (64, 256), (64, 192), (256, 64), (192, 64), (128, 64), (64, 128), (256, 32),
    (128, 32), (64, 64), (64, 32),
)  # fmt: skip
# Elements of a line, those of the largest swizzle first.
_LINES = (64, 32, 16)
_MOST_BOX = 256
# What aligns the first stage, and the barriers; for each warp of a group 144 bytes for a column of
# its strip and 4 for one of its tile; columns of a strip.
ALIGNMENT_BYTES, STRIP_BYTES, TILE_BYTES = 1024 + 256, 4 * 144, 4 * 4
# Marks of a column's results, which say what is counted.
_MARKS = 4 * 32
SPANS = (16, 32)
# Values of a column that an epilogue reads and that are kept beside its power of two, at most.
_MOST_KEPT = 3
# Warpgroups that take tiles in turns, and the most panels of 64 rows times columns of a tile: the
# more there are, the fewer registers has each, and with more sums than these the epilogue spilled.
# Totals beside sums take as many again.
MOST_SUMS = {4: 64, 3: 128, 2: 256}
# Multiply-adds of a multiprocessor in a cycle and the share of them that is reached; bytes of a
# factor that it reads from shared memory meanwhile, and those that the last-level cache brings.
_MULTIPLIED, _SHARE, _SHARED_RATE, _CACHE_RATE = 2048, 0.85, 128.0, 25.0
# Cycles of a step besides, from asking for a copy to its arrival, and those in which a warpgroup
# stores one result a thread (measured: 100, as a warp waits for what it has just asked for);
# results that a multiprocessor stores in one at most, and lines that it is brought.
_STEP_CYCLES, _ARRIVAL, _STORED, _MOST_STORED, _LINES_BROUGHT = 40.0, 1200.0, 100.0, 1.7, 1.0
# Positions of the depth that are summed before they are added to totals, and the cycles that this
# takes besides one an addition where no other panel is multiplied meanwhile.
PROMOTED, _DRAINED = 64, 100.0
# Accesses of shared memory and of the cache beside it that 32 results take on their way out; they
# share the bandwidth with what products read. So reckoned, a tile of 128 x 64 over 64 channels of
# 3x3 takes 4,270 cycles, where 4,375 were measured.
_LEAVING = 6.0
# And how many more where panels have no other beside them, whose lines are half as long.
_ALONE = 1.3
# How much more where two panels give a warp 32 rows beside each other.
_PAIRED = 1.5
# The share of memory's bandwidth that packing reaches.
_PACKING = 0.7
# What a pass takes that adds results to those of other outputs of their place, of one that stores
# every result (an estimate).
_IN_TURNS = 0.8
# And what statistics of all results take besides, of such a pass (six convolutions on an H200:
# benchmarks/results/h200/convolutions.md).
_COUNTED = 0.8
# Numbers of an image that are looked at before it is packed, and the most runs of which one is.
_SAMPLED, _MOST_RUNS = 1 << 16, 32


@dataclass(frozen=True)
class Way:
    """How tiles are multiplied.

    Their size, the taps of a step, warpgroups in turns, and whether the other factor is held in
    shared memory.
    """

    tile: tuple[int, int]
    reuse: int
    groups: int
    held: bool


@dataclass(frozen=True)
class Layout:
    """One way to pack and to step: which taps are channels, how wide lines are.

    `parts` are the halves that an element is written as, `kept` the floats that each warp keeps of
    a column of its tile: its power of two, and what the epilogue reads of it. `passes` is how often
    it goes through a tile's results, one that stores nothing counted as less.
    """

    windows: Windows
    line: int
    parts: int = 1
    kept: int = 1
    folding: Folding | None = None
    passes: float = 1.0
    counted: bool = False

    @property
    def strip_bytes(self) -> int:
        """Of a column of the strips of a group's warps: sums, and results that are counted."""
        return STRIP_BYTES * (1 + self.counted) + _MARKS * self.counted

    @property
    def in_turns(self) -> bool:
        """Whether results are kept until all outputs of a place are made."""
        return bool(self.windows.members)

    @property
    def products(self) -> int:
        """Those of halves for one of elements; what two lower parts make is left out."""
        return 3 if self.parts == 2 else 1

    @cached_property
    def run(self) -> Direction | None:
        """The direction whose taps may share a box: rows beside each other, in one phase."""
        slid = [one for one in self.windows.slid if one.pace == 1 and one.dilation > 0]
        return slid[-1] if slid and slid[-1] is self.windows.slid[-1] else None

    @cached_property
    def apart(self) -> int:
        """Rows between neighbouring taps of the run."""
        if self.run is None:
            return 0
        at = self.windows.directions.index(self.run)
        return self.windows.pitches[at] * self.run.dilation

    @cached_property
    def run_taps(self) -> int:
        """Taps of the last direction, which steps go through innermost."""
        return self.windows.slid[-1].taps if self.windows.slid else 1

    @cached_property
    def outer_taps(self) -> int:
        """Taps of all others."""
        return self.windows.taps // self.run_taps

    @cached_property
    def pitch(self) -> int:
        """Elements of a packed row."""
        return -(-self.windows.width // self.line) * self.line

    @property
    def reuses(self) -> list[int]:
        """How many taps a step may take."""
        if self.run is None:
            return [1]
        fits = [n for n in range(1, self.run_taps + 1) if (n - 1) * self.apart <= _MOST_BOX]
        # As many steps with fewer taps each, where fewer steps are none.
        return [n for n in fits if n == 1 or -(-self.run_taps // n) < -(-self.run_taps // (n - 1))]

    def steps(self, reuse: int) -> int:
        """Steps of a tile."""
        return self.outer_taps * (self.pitch // self.line) * -(-self.run_taps // reuse)

    def brought(self, rows: int, reuse: int) -> int:
        """Bytes of the window's factor that a step brings."""
        halo = -(-((reuse - 1) * self.apart) // 8) * 8
        return self.parts * -(-(rows + halo) * self.line * 2 // 1024) * 1024

    def room(self, way: Way, stages: int) -> int:
        """Shared memory of a block."""
        rows, columns = way.tile
        of_step = self.parts * way.reuse * columns * self.line * 2
        others = self.steps(way.reuse) * of_step if way.held else stages * of_step
        of_group = SPANS[0] * self.strip_bytes + columns * TILE_BYTES * self.kept
        of_group += 4 * rows * columns * self.in_turns
        beside = way.groups * of_group + ALIGNMENT_BYTES
        return stages * self.brought(rows, way.reuse) + others + beside


@dataclass(frozen=True)
class Choice:
    """A layout with a way, and the cycles that packing and the product take together."""

    layout: Layout
    way: Way
    cycles: float


def is_scaled(contraction: Contraction) -> bool:
    """Whether factors are float32, which halves stand for scaled."""
    return contraction.precision is DType.FLOAT32


def others(contraction: Contraction, side: str) -> int:
    """Columns of the product: the side of the window's own factor."""
    return contraction.m if side == "right" else contraction.n


def kept_loads(case: Case, contraction: Contraction, side: str) -> tuple[Stmt, ...]:
    """What the epilogue reads of each column of the product, as far as there is room for it."""
    printer = ElementPrinter(case.loop, contraction)
    return printer.loads_of(other_side(side))[:_MOST_KEPT]


# Thousands of ways are looked at, and a planner asks about the same loop again and again.
@lru_cache(maxsize=64)
def choices(case: Case, contraction: Contraction, parts: int = 1) -> tuple[Choice, ...]:
    """Every way to pack, with its best tile, the fastest first; packing is counted.

    `parts` are the halves that an element is written as.
    """
    found = windows_of(contraction)
    if found is None:
        raise ValueError(f"{case.loop.name}: no factor that windows read")
    side, ways = found
    n, batches = others(contraction, side), contraction.batches
    kept = int(is_scaled(contraction)) + len(kept_loads(case, contraction, side))
    folding, passes = _folded(case, contraction, side)
    counted = contraction.statistics is not None
    passes += _COUNTED * counted
    listed: list[Choice] = []
    for windows in ways:
        lines = [line for line in _LINES if line == 16 or windows.width > line // 2]
        for line in lines:
            layout = Layout(windows, line, parts, kept, folding, passes, counted)
            packing = packing_cycles(case, contraction, layout)
            listed += tiled(case, layout, n, batches, packing)[:1]
    return tuple(sorted(listed, key=lambda one: one.cycles))


def tiled(case: Case, layout: Layout, n: int, batches: int, packing: float = 0.0) -> list[Choice]:
    """The tiles and reuses of a layout that fit a block, the fastest first."""
    ways = (
        Way(tile, reuse, groups, held)
        for tile in TILES
        if layout.folding is None or layout.folding.fits(tile[1])
        for groups, most in MOST_SUMS.items()
        if tile[0] // 64 * tile[1] * layout.parts <= most
        for reuse in layout.reuses
        for held in (True, False)
        if not (held and batches * -(-n // tile[1]) > case.multiprocessors)
    )
    found = [
        Choice(layout, way, packing + _cycles(case, layout, way, n, batches))
        for way in ways
        if layout.room(way, 2) <= case.shared_bytes
    ]
    return sorted(found, key=lambda one: one.cycles)


def _folded(case: Case, contraction: Contraction, side: str) -> tuple[Folding | None, float]:
    """How results are folded, and the passes over them."""
    if not contraction.folds:
        return None, 1.0
    found = windows_of(contraction)
    if found is not None and found[1][0].members:
        return None, _IN_TURNS
    shares = [one.share for one in _folds(case, contraction).passes()]
    folding = folding_of(contraction, other_side(side))
    at_once = folding is not None and folding.is_of_lane
    return folding, max(shares) if at_once else sum(shares)


def _folds(case: Case, contraction: Contraction) -> FoldPrinter:
    return FoldPrinter(ElementPrinter(case.loop, contraction), contraction, "0", {})


def flops_of_result(case: Case, contraction: Contraction) -> int:
    """Arithmetic of what is done to one result."""
    if contraction.folds:
        return _folds(case, contraction).flops()
    return sum(statement_flops(stmt) for stmt in contraction.epilogue)


def other_side(side: str) -> str:
    """What the other factor's side is called, by whose positions tiles have columns."""
    return "column" if side == "left" else "row"


def side_of(contraction: Contraction) -> str:
    """The side whose factor windows read; empty where there is none."""
    found = windows_of(contraction)
    return found[0] if found is not None else ""


def most_stages(case: Case, layout: Layout, way: Way) -> int:
    """As many as fit, eight at most."""
    none, one = layout.room(way, 0), layout.room(way, 1)
    return min(8, (case.shared_bytes - none) // (one - none))


def _cycles(case: Case, layout: Layout, way: Way, n: int, batches: int) -> float:
    """Of the product: waves of tiles at the rate of products, copies or stores."""
    rows, columns = way.tile
    across = batches * -(-n // columns)
    down = -(-layout.windows.places // rows) * layout.windows.turns
    products = layout.products * way.reuse * layout.line / 16 * rows / 64
    multiplied = max(64 * columns * 16 / _MULTIPLIED / _SHARE, (64 + columns) * 32 / _SHARED_RATE)
    held = 0 if way.held else layout.parts * way.reuse * columns * layout.line * 2
    brought = layout.brought(rows, way.reuse) + held
    lines = brought / (2 * layout.line) / _LINES_BROUGHT
    step = max(products * multiplied, brought / _CACHE_RATE, lines) + _STEP_CYCLES
    if layout.parts == 2 and rows == 64:
        step += -(-way.reuse * layout.line // PROMOTED) * (columns / 2 + _DRAINED)
    # A stage is asked for again when its products are over.
    step = max(step, (_ARRIVAL + 2 * step) / most_stages(case, layout, way))
    summed = layout.steps(way.reuse) * step
    results = rows * columns * layout.passes
    stored = results / 128 * _STORED
    rate = _MOST_STORED * (_PAIRED if rows % 128 == 0 else 1.0)
    read = products * (64 + columns) * 32 + brought
    leaving = _LEAVING * (1.0 if rows % 128 == 0 else _ALONE)
    shared = (layout.steps(way.reuse) * read) / _SHARED_RATE + results / 32 * leaving
    of_tile = max(summed, (summed + stored) / way.groups, shared, results / rate)
    blocks = case.multiprocessors // across * across if way.held else case.multiprocessors
    return -(-down * across // blocks) * of_tile


def hertz(hardware: Hardware, multiprocessors: int) -> float:
    """Cycles of a second, from the data sheet's rate of products."""
    return (hardware.tensor_tflops or 1.0) * 1e12 / multiprocessors / (2 * _MULTIPLIED)


def sampled_runs(windows: Windows) -> int:
    """Of how many runs of an image one is looked at: a power of two, 1 where all are."""
    _, span = windows.image_span
    wanted = min(_MOST_RUNS, max(1, span // _SAMPLED))
    return 1 << (wanted.bit_length() - 1)


def packing_cycles(case: Case, contraction: Contraction, layout: Layout) -> float:
    """Those of writing the window's factor as rows."""
    looked_at = 1 / sampled_runs(layout.windows) if is_scaled(contraction) else 0.0
    read = case.moved_bytes[0] * (1 + looked_at)
    written = 2 * layout.parts * contraction.batches * layout.windows.rows * layout.pitch
    moved = read + 2 * written
    seconds = moved / (case.hardware.bandwidth_gb_s * 1e9 * _PACKING)
    return seconds * hertz(case.hardware, case.multiprocessors)
