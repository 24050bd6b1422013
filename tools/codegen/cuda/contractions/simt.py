"""Products of matrices on the ordinary cores, in float32: what every device and operand can do.

A block makes a tile of results in the registers of its threads. Slices of both operands pass
through shared memory, each element read once a block, whatever it is computed from. Where results
are few and sums long, several blocks share the summands of a tile; a second kernel adds their
parts, always in the same order.

Sums are float32 throughout, one chain of fused multiply-adds for each result (or part of one), so
they are as exact as a sum in order is. Half types are read as they lie and multiplied as float32:
on tensor cores the library does those far faster, and the prediction says so.

The prediction counts blocks on the fullest multiprocessor, the share of its rate that tiles of
that size reach, what moves through the caches and how long each slice is under way. Its shares are
estimates, not measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.contractions.epilogue import (
    ElementPrinter,
    Printed,
)
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.fitted_costs import leaving_ms
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import INT_LIMIT, SLACK
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import statement_flops
from kernelwright.tools.types import DType

TILES, SPLIT = "simt_tiles", "simt_split"
NAMES = (TILES, SPLIT)

# Shared memory that a kernel has without asking for more.
_STATIC_BYTES = 48 * KIB
_DEPTHS = (16, 8, 32)
# Tiles that are tried: a tuner draws from all of them, so none that is expected to be far behind.
_MOST_TILES, _FAR = 16, 1.5
_JOIN_THREADS = 256
# Registers of a thread besides its results and what is on its way: fragments and addresses.
_OTHER_REGISTERS = 44
# Summands of one part, at least: fewer are over before the pipeline is full.
_LEAST_PART = 128
_MOST_SPLITS = 256
# Elements of all parts together, 256 MiB: what a plan allocates beside the task's own tensors.
_MOST_PARTS = 1 << 26
# A whole sum, at most: longer chains of additions round more than what the library does in parts.
_LONGEST = 1 << 16
# What parts must leave of the time of whole sums, to be proposed.
_WORTH = 0.95

# The share of a multiprocessor's rate that threads with so many results reach: each summand costs
# them one read of shared memory for every four factors. Estimates, from what such kernels reach.
_SHARES = {64: 0.8, 32: 0.65, 16: 0.45}
# Warps that a multiprocessor needs to reach it, and what it reads of the last-level cache.
_WARPS, _CACHED_GB_S = 8, 45
# The share of memory's bandwidth that tiles reach, and what of the shorter of arithmetic and
# traffic is not hidden behind the longer.
_MEMORY, _IN_THE_WAY = 0.85, 0.2
# A block's slice is at least as long under way, and only one of its slices is at a time.
_SLICE_US = 0.5


@dataclass(frozen=True)
class Tile:
    """What a block of `threads` makes at once."""

    rows: int
    columns: int
    threads: int

    @property
    def each(self) -> int:
        """Results of a thread."""
        return self.rows * self.columns // self.threads

    @property
    def word(self) -> int:
        """The value of the tunable."""
        return 1000 * self.rows + self.columns

    def shared_bytes(self, depth: int) -> int:
        """Two slices of each operand, with the gap that keeps banks apart."""
        return 2 * depth * (self.rows + self.columns + 8) * 4


def tiles() -> Iterator[Tile]:
    """Every tile whose threads have 16, 32 or 64 results."""
    for threads in (256, 128, 64):
        for rows in powers(8, 256):
            for columns in powers(8, 256):
                tile = Tile(rows, columns, threads)
                if rows * columns == tile.each * threads and tile.each in _SHARES:
                    yield tile


def tile_ms(
    contraction: Contraction, hardware: Hardware, tile: Tile, *, splits: int = 1, depth: int = 16
) -> float:
    """Milliseconds of the arithmetic, of the caches' traffic or of the way to memory."""
    across = -(-contraction.n // tile.columns)
    blocks = -(-contraction.m // tile.rows) * across * contraction.batches * splits
    blocks = max(1, ceil(blocks * contraction.needed_share))
    summands = -(-contraction.k // (splits * depth)) * depth
    sms = hardware.sm_count or 1
    resident = min(-(-blocks // sms), _resident(hardware, tile, depth))
    share = _SHARES[tile.each] * min(1.0, resident * tile.threads / 32 / _WARPS)
    work = 2 * tile.rows * tile.columns + _fetching(contraction, tile)
    rate = hardware.fp32_tflops * 1e9 / sms * share
    computing = -(-blocks // sms) * summands * work / rate
    cached = blocks * summands * _bytes_of_slice(contraction, tile)
    moving = cached / (_CACHED_GB_S * sms * 1e6)
    waiting = -(-blocks // (sms * resident)) * summands / depth * _SLICE_US / 1e3
    # What is not the longest is hidden behind it, but never quite.
    return max(computing, moving, waiting) + _IN_THE_WAY * min(computing, moving)


def _resident(hardware: Hardware, tile: Tile, depth: int) -> int:
    """Blocks that a multiprocessor holds at a time."""
    coming = (tile.rows + tile.columns) * depth // tile.threads
    each = tile.each + coming + coming // 2 + _OTHER_REGISTERS
    registers = (hardware.registers_per_sm or 65536) // (tile.threads * each)
    threads = (hardware.threads_per_sm or 1536) // tile.threads
    shared = (hardware.shared_kib_per_sm or 100) * KIB // (tile.shared_bytes(depth) + KIB)
    return max(1, min(registers, threads, shared))


def _fetching(contraction: Contraction, tile: Tile) -> float:
    """Operations that make one slice of depth 1 of both operands."""
    left = sum(map(statement_flops, contraction.left.body))
    right = sum(map(statement_flops, contraction.right.body))
    return tile.rows * left + tile.columns * right


def _bytes_of_slice(contraction: Contraction, tile: Tile) -> float:
    def each(operand: Operand) -> int:
        return sum(access.dtype.itemsize_bytes for access in operand.loads)

    return tile.rows * each(contraction.left) + tile.columns * each(contraction.right)


def splits_of(contraction: Contraction, hardware: Hardware) -> list[int]:
    """Numbers of parts of a sum that are worth a second kernel, the most promising first."""
    results = contraction.batches * contraction.m * contraction.n
    most = min(_MOST_SPLITS, contraction.k // _LEAST_PART, _MOST_PARTS // results)
    found = {splits: best_ms(contraction, hardware, splits) for splits in powers(2, most)}
    return sorted(found, key=lambda splits: found[splits])[:5]


def best_ms(contraction: Contraction, hardware: Hardware, splits: int) -> float:
    """The time of the best tile and of the parts' way through memory, without launches."""
    joined = 8 * splits * contraction.batches * contraction.m * contraction.n if splits > 1 else 0
    parts = joined / (hardware.bandwidth_gb_s * 1e6 * _MEMORY)
    return parts + min(tile_ms(contraction, hardware, tile, splits=splits) for tile in tiles())


# Of what results cost (`fitted_costs`); of one kernel in a ResNet stage, 227 us on an H200.
_LEFT_OF_RESULTS = 0.55


def predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    """The best tile's time, never less than memory's, and the launches."""
    read, written = case.moved_bytes
    moved = (read + written) / (case.hardware.bandwidth_gb_s * 1e6 * _MEMORY)
    splits = splits_of(contraction, case.hardware)[0] if strategy.name == SPLIT else 1
    computed = best_ms(contraction, case.hardware, splits)
    computed += _LEFT_OF_RESULTS * leaving_ms(case, contraction)
    return max(moved, computed) + strategy.launches * case.hardware.launch_us / 1e3


def fit(case: Case, contraction: Contraction) -> Fit:
    """Whether it multiplies such matrices: float32 sums, positions that 32 bits hold."""
    sides = (contraction.batches * contraction.m, contraction.n, contraction.k)
    fits = contraction.dtype is DType.FLOAT32 and contraction.is_matrix_product
    if not fits or any(side >= INT_LIMIT - SLACK for side in sides):
        return Fit.NO
    try:
        contraction_arguments(contraction)
    except ValueError:
        return Fit.NO
    return Fit.FAIR if min(contraction.m, contraction.n) >= FEWEST else Fit.POOR


def strategies(case: Case, contraction: Contraction) -> list[Strategy]:
    """Whole sums in a block, and sums in parts where those take less time."""
    splits = splits_of(contraction, case.hardware)
    if splits and contraction.k > _LONGEST:
        return [_SPLIT]
    whole, parts = (best_ms(contraction, case.hardware, n) for n in (1, *(splits[:1] or [1])))
    return [_TILES, _SPLIT] if parts < _WORTH * whole else [_TILES]


_TILES = Strategy(
    name=TILES,
    title="Tiles of a product in registers",
    mechanism="Each block multiplies one tile: slices of both operands pass through shared memory "
    "while the next are on their way, and every thread sums a square of results in registers. "
    "What follows the product is done before anything is stored.",
    reason="every element that a block reads is used for a whole row or column of its tile, and "
    "nothing between the product and what follows it goes through memory",
    category="arithmetic",
    metric="fp32 pipe utilisation",
    memory="tiles in shared memory",
    compute="register tiles",
    parallel="tile per block",
    efficiency=0.75,
)
_SPLIT = _TILES.model_copy(
    update={
        "name": SPLIT,
        "title": "Tiles of a product, long sums in parts",
        "mechanism": "Several blocks share the summands of a tile and leave their sums in memory; "
        "a second kernel adds them in a fixed order and does what follows the product.",
        "reason": "few results with long sums would leave most multiprocessors idle, and shorter "
        "chains of additions round less",
        "category": "parallelism",
        "metric": "achieved occupancy",
        "parallel": "split sums",
        "launches": 2,
    }
)


def emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    """Print a product.

    Raises:
        ValueError: When sums are too short to be split.
    """
    split, printer = name == SPLIT, ElementPrinter(case.loop, contraction)
    splits = splits_of(contraction, case.hardware) if split else [1]
    if not splits:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    width = min(4, printer.width_of_epilogue())
    tunables = _tunables(case, contraction, prefix, splits)
    neighbour = "k" if width > 1 else "0"
    total = f"sum[{neighbour}]" if split else f"total[i][j + {neighbour}]"
    source = render(
        "simt",
        title=(_SPLIT if split else _TILES).title,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        type="float",
        split=split,
        batches=contraction.batches,
        m=contraction.m,
        n=contraction.n,
        k=contraction.k,
        left=_fetched(printer, contraction.left, "row", "M"),
        right=_fetched(printer, contraction.right, "column", "N"),
        needed=printer.tile_is_needed(("row0", "ROWS"), ("column0", "COLUMNS")),
        width=width,
        join_threads=_JOIN_THREADS,
        epilogue=printer.epilogue(total, width=width).lines(),
    )
    arguments = contraction_arguments(contraction)
    arguments.append(Argument("parts", "float* __restrict__ parts", f"{prefix}_parts"))
    text, plan = complete(source, arguments, _launches(contraction, prefix, tunables, split, width))
    return Emitted(source=text, plan=(*_parts(contraction, prefix, tunables, split), *plan))


@dataclass(frozen=True)
class Fetched:
    """How a block brings slices of an operand to shared memory.

    `along` is the side that neighbouring threads follow, `width` what each moves at once.
    """

    name: str
    side: str
    limit: str
    along: str
    width: int
    lines: tuple[str, ...]


def _fetched(printer: ElementPrinter, operand: Operand, side: str, limit: str) -> Fetched:
    name = "left" if side == "row" else "right"
    along = max(
        (side, "depth"),
        key=lambda one: (printer.width(operand, one), printer.lies_along(operand, one)),
    )
    # Slices are at least 8 deep, and tiles have at least 8 rows and columns.
    width = min(8, printer.width(operand, along))
    make = printer.left if name == "left" else printer.right
    printed: Printed = make(along=along, width=width)
    at = "k" if width > 1 else "0"
    lines = printed.lines(f"{name}_held[u][{at}] = {printed.value};")
    return Fetched(name, side, limit, along, width, lines)


def _tunables(case: Case, contraction: Contraction, prefix: str, splits: list[int]) -> Tunables:
    """Settings with the best guess first; the tile changes fastest, in the order of its time."""
    times = {tile: tile_ms(contraction, case.hardware, tile, splits=splits[0]) for tile in tiles()}
    order = sorted(times, key=lambda tile: (times[tile], tile.shared_bytes(16)))
    order = [tile for tile in order if times[tile] <= _FAR * times[order[0]]][:_MOST_TILES]
    tunables = Tunables(prefix)
    if splits != [1]:
        tunables.add("SPLITS", splits)
    tunables.add("GROUP", (8, 1, 32)).add("DEPTH", _DEPTHS)
    tunables.add("THREADS", [tile.threads for tile in order])
    tunables.add("TILE", [tile.word for tile in order])
    sizes = "{TILE} // 1000", "{TILE} % 1000"
    tunables.require(f"({sizes[0]}) * ({sizes[1]}) >= 16 * {{THREADS}}")
    tunables.require(f"({sizes[0]}) * ({sizes[1]}) <= 64 * {{THREADS}}")
    shared = f"8 * {{DEPTH}} * ({sizes[0]} + {sizes[1]} + 8)"
    return tunables.require(f"{shared} <= {_STATIC_BYTES}")


def _launches(
    contraction: Contraction, prefix: str, tunables: Tunables, split: bool, width: int
) -> list[Launch]:
    across = f"ceil_div({contraction.n}, {{TILE}} % 1000)"
    grid = f"ceil_div({contraction.m}, {{TILE}} // 1000) * {across} * {contraction.batches}"
    grid += " * {SPLITS}" if split else ""
    first = Launch(f"{prefix}_tiles", tunables.named(grid), tunables.named("{THREADS}"))
    count = contraction.batches * contraction.m * contraction.n // width
    second = Launch(f"{prefix}_join", str(-(-count // _JOIN_THREADS)), str(_JOIN_THREADS))
    return [first, second] if split else [first]


def _parts(contraction: Contraction, prefix: str, tunables: Tunables, split: bool) -> list[str]:
    count = prod((contraction.batches, contraction.m, contraction.n))
    size = tunables.named(f"{count} * {{SPLITS}}")
    return [f'{prefix}_parts = empty(({size},), dtype="float32")'] if split else []


SIMT_FAMILY = ContractionFamily(NAMES, fit, strategies, predicted_ms, emit)
