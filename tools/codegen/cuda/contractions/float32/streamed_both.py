"""Long float32 sums of few results, both factors split into parts on their way (sm_90a).

`streamed` packs the smaller factor in passes that read it twice and write it once. Where both are
equally large and few results come of them, these passes take longer than the product. Here neither
is packed: two warpgroups of a block read both factors as they lie and write their 16-bit parts to
shared memory, from where the others multiply. Each factor is read as often as tiles lie beside each
other, mostly from the last-level cache. The depth is shared by as many blocks as there are
multiprocessors, and a second kernel joins their sums in a fixed order.

Pieces of 64 positions of a row or column have powers of two of their own wherever that of its
largest piece so far would cost them bits.

Not here: factors that are computed on the way in, packed once, rounded to TF32, or lie so that runs
are not of 16 bytes; sides of several axes; products of so many results, or of so short sums, that
one block adds each tile's; any other device than sm_90a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.epilogue import (
    ElementPrinter,
    Printed,
)
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.float32.split import (
    LONGEST,
    is_preparable,
    leaving,
    takes,
    with_packing,
)
from kernelwright.tools.codegen.cuda.contractions.float32.streamed import runs_along_depth
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of, tiles_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit

STREAMED_BOTH = "streamed_both_splits"
_ARCHITECTURE = "sm_90a"
_TITLE = "Float32 as three products of 16-bit parts, both factors split on their way; sums in parts"
# Rows x columns of tiles, 64 rows a warpgroup that multiplies.
_TILES = ((128, 128), (64, 128), (128, 64), (64, 64))
_STEP, _ALIGNMENT = 64, 1024
# Bytes of shared memory for a row or column: its parts in a stage, and two powers of two; what is
# noted of it. Besides, a stage has a word for each warp that splits, and two barriers.
_STAGE_BYTES, _NOTED_BYTES, _STAGE_MORE = 4 * _STEP + 8, 4 * 4 + 4, 8 * 4 + 2 * 8
# What a step of 64 positions takes, in us: for every 64 rows, and for every 64 columns. Measured on
# an H200 with numbers that waited in registers (benchmarks/results/h200/products).
_STEP_US_DOWN, _STEP_US_ACROSS = 0.72, 0.51
# Steps that a block waits at first, steps of a part at least, and the most tiles, of the number of
# multiprocessors, whose sums are shared.
_RAMP_STEPS, _LEAST_STEPS, _FULL = 2, 8, 0.75
# Of the device's bandwidth what streams reach, and bytes of the last-level cache for one of memory.
_MEMORY, _CACHE_RATE = 0.9, 1.4
# Warps that share the parts of a few results, two each or more, as C++; threads as plan text.
_JOINERS_CODE = "({SPLITS} < 4 ? 1 : {SPLITS} > 32 ? 16 : {SPLITS} / 2)"
_JOINER_THREADS = "32 * max(1, min(16, {SPLITS} // 2))"
# The join's time, alone and for each part, of which sixteen warps read as many.
_JOIN_MS, _JOIN_MS_A_PART = 0.003, 0.0001


@dataclass(frozen=True)
class UnpackedFactor:
    """A factor as it lies.

    `decode` and `offset` say where in `buffer` an element of `batch`, `side` and `depth` is; rows
    (or columns) lie `side_step` elements apart, positions of the depth `depth_step`. Runs of 16
    bytes go along the depth, or along the side. `narrow` prints it element by element.
    """

    name: str
    side: str
    extent: int
    along_depth: bool
    buffer: str
    decode: tuple[str, ...]
    offset: str
    side_step: int
    depth_step: int
    narrow: Printed


def factors_of(
    contraction: Contraction, printer: ElementPrinter
) -> tuple[UnpackedFactor, UnpackedFactor] | None:
    """Both factors, the left one first; None where one of them cannot be read as it lies."""
    left, right = _unpacked(contraction, printer, "row"), _unpacked(contraction, printer, "column")
    return None if left is None or right is None else (left, right)


def _unpacked(
    contraction: Contraction, printer: ElementPrinter, side: str
) -> UnpackedFactor | None:
    is_left = side == "row"
    operand = contraction.left if is_left else contraction.right
    own = contraction.rows if is_left else contraction.columns
    along_depth = runs_along_depth(contraction, operand, side)
    if along_depth is None or len(own) != 1 or operand.access is None:
        return None
    lines: list[str] = []
    for name, axes in (("batch", contraction.batch), (side, own), ("depth", contraction.depth)):
        lines += decoded(f"{name}_", name, tuple(axis.size for axis in axes), "int")
    return UnpackedFactor(
        name="left" if is_left else "right",
        side=side,
        extent=own[0].size,
        along_depth=along_depth,
        buffer=f"g_{operand.access.buffer}",
        decode=tuple(lines),
        offset=printer.offset(operand.access),
        side_step=operand.access.step(own[0].name),
        depth_step=operand.access.step(contraction.depth[0].name),
        narrow=(printer.left if is_left else printer.right)(along="depth", width=1),
    )


def _takes(case: Case, contraction: Contraction) -> Fit:
    if case.hardware.architecture != _ARCHITECTURE or takes(case, contraction) is Fit.NO:
        return Fit.NO
    sides = contraction.left, contraction.right
    if contraction.is_tf32 or any(is_preparable(case, operand) for operand in sides):
        return Fit.NO
    if min(contraction.m, contraction.n) < FEWEST or not splits_of(case, contraction):
        return Fit.NO
    found = factors_of(contraction, ElementPrinter(case.loop, contraction))
    return Fit.NO if found is None else Fit.BEST


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=STREAMED_BOTH,
            title=_TITLE,
            mechanism="No pass packs a factor. Some warps of a block read rows and columns as "
            "they lie and write their scaled fp16 parts to a ring of stages, others multiply "
            "them by three products of wgmma. Blocks share the depth of a tile, and a second "
            "kernel joins their sums in a fixed order.",
            reason="A pass over a factor reads and writes what the product reads anyway; where few "
            "results come of long sums, such passes take longer than the product.",
            category="memory",
            metric="memory throughput",
            memory="parts made in shared memory",
            compute="split products by warpgroups",
            parallel="split sums",
            efficiency=0.85,
            launches=2,
        )
    ]


def splits_of(case: Case, contraction: Contraction) -> list[int]:
    """Numbers of parts of a sum, the most promising first; none where parts are of no use."""
    best = _ordered(case, contraction)[0]
    filling = _filling(case, contraction, best)
    most = -(-contraction.k // _STEP) // _LEAST_STEPS
    least = max(2, -(-contraction.k // LONGEST))
    wanted = (filling, 2 * filling, filling // 2, 4 * filling)
    return [n for n in dict.fromkeys(wanted) if filling > 1 and least <= n <= most]


def _filling(case: Case, contraction: Contraction, tile: tuple[int, int]) -> int:
    """How many parts of a tile's sums give every multiprocessor work."""
    tiles = tiles_of(shape_of(contraction), *tile)
    if tiles > _FULL * case.multiprocessors:
        return 1
    most = max(1, -(-contraction.k // _STEP) // _LEAST_STEPS)
    return min(case.multiprocessors // tiles, most)


def _step_ms(tile: tuple[int, int]) -> float:
    """What 64 positions of a tile take, most of it to read and to split its rows and columns."""
    return (_STEP_US_DOWN * tile[0] + _STEP_US_ACROSS * tile[1]) / 64 / 1e3


def _product_ms(case: Case, contraction: Contraction, tile: tuple[int, int], splits: int) -> float:
    """The most of: waves of parts, what they read of the last-level cache, and memory."""
    hardware = case.hardware
    items = tiles_of(shape_of(contraction), *tile) * splits
    steps = -(-contraction.k // _STEP) / splits
    waves = -(-items // case.multiprocessors)
    by_steps = (waves * steps + _RAMP_STEPS) * _step_ms(tile)
    bandwidth = hardware.bandwidth_gb_s * 1e6
    by_cache = items * steps * _STEP * 4.0 * sum(tile) / (bandwidth * _CACHE_RATE)
    written = 8.0 * splits * contraction.batches * contraction.m * contraction.n
    return max(by_steps, by_cache, (sum(case.moved_bytes) + written) / (bandwidth * _MEMORY))


def _ordered(case: Case, contraction: Contraction) -> list[tuple[int, int]]:
    """Tiles by their time, each in as many parts as fill the device."""

    def time(tile: tuple[int, int]) -> float:
        return _product_ms(case, contraction, tile, _filling(case, contraction, tile))

    return sorted(_TILES, key=time)


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best, splits = _ordered(case, contraction)[0], splits_of(case, contraction)[0]
    launches = strategy.launches * case.hardware.launch_us / 1e3
    join = _JOIN_MS + _JOIN_MS_A_PART * splits
    return _product_ms(case, contraction, best, splits) + join + launches


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    printer = ElementPrinter(case.loop, contraction)
    factors = factors_of(contraction, printer)
    if factors is None:
        raise ValueError(f"{case.loop.name}: {name} needs factors that lie in runs of 16 bytes")
    tunables = _tunables(case, contraction, prefix)
    ways = leaving(printer, contraction, by_rows=True)
    tunables.add("DIRECT", ways.first)
    source = render(
        "streamed_both",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        shape=shape_of(contraction),
        splits=tunables.named("{SPLITS}"),
        needed=printer.tile_is_needed(("first", "BM"), ("other", "BN")),
        left=factors[0],
        right=factors[1],
        epilogue=ways.wide,
        direct=ways.direct,
        joiners=tunables.named(_JOINERS_CODE),
    )
    arguments = [*contraction_arguments(contraction), *_part_arguments(prefix)]
    launches = _launches(case, contraction, tunables, prefix)
    lines = _part_allocations(contraction, tunables, prefix)
    return with_packing(contraction, prefix, (), source, arguments, launches, lines)


def _tunables(case: Case, contraction: Contraction, prefix: str) -> Tunables:
    ordered = _ordered(case, contraction)
    tunables = Tunables(prefix)
    tunables.add("SPLITS", splits_of(case, contraction))
    tunables.add("TILE", [1000 * rows + columns for rows, columns in ordered])
    tunables.add("STAGES", (2, 3, 4))
    # Whether numbers of the next step wait in shared memory, or in registers. On an H200 registers
    # were 1 to 4 % faster with the look ahead of two steps, and shared memory without one.
    tunables.add("COPIES", (0, 1))
    # Steps that factors are brought to the last-level cache before they are asked for.
    tunables.add("AHEAD", (2, 0, 3))
    tunables.add("GROUP", (8, 16, 4, 1))
    return tunables.require(f"{_shared()} <= {1024 * (case.hardware.shared_kib_per_block or 48)}")


def _shared() -> str:
    """Bytes of shared memory, as plan text."""
    sides = "({TILE} // 1000 + {TILE} % 1000)"
    stage = f"{sides} * {_STAGE_BYTES} + {_STAGE_MORE}"
    copies = f"{{COPIES}} * {sides} * {4 * _STEP}"
    return f"{{STAGES}} * ({stage}) + {copies} + {sides} * {_NOTED_BYTES} + {_ALIGNMENT}"


def _tiles_text(contraction: Contraction) -> str:
    down = f"ceil_div({contraction.m}, {{TILE}} // 1000)"
    across = f"ceil_div({contraction.n}, {{TILE}} % 1000)"
    return f"{contraction.batches} * {down} * {across}"


def _launches(
    case: Case, contraction: Contraction, tunables: Tunables, prefix: str
) -> list[Launch]:
    tiles = _tiles_text(contraction)
    product = Launch(
        kernel=f"{prefix}_both",
        grid=tunables.named(f"min({case.multiprocessors}, {tiles} * {{SPLITS}})"),
        block=tunables.named("{TILE} // 64000 * 128 + 256"),
        shared=tunables.named(_shared()),
    )
    warps = "({TILE} // 16000) * ({TILE} % 1000 // 32)"
    return [
        product,
        Launch(
            f"{prefix}_join", tunables.named(f"{tiles} * {warps}"), tunables.named(_JOINER_THREADS)
        ),
    ]


def _part_arguments(prefix: str) -> list[Argument]:
    return [
        Argument(name, f"{kind}* {name}", f"{prefix}_{name}")
        for name, kind in (("parts", "float"), ("part_spreads", "int"), ("part_bounds", "float"))
    ]


def _part_allocations(contraction: Contraction, tunables: Tunables, prefix: str) -> list[str]:
    """Sums of each part of a tile, and what is noted of its rows and columns."""
    parts = tunables.named(f"{_tiles_text(contraction)} * {{SPLITS}}")
    rows, columns = tunables.named("({TILE} // 1000)"), tunables.named("({TILE} % 1000)")
    return [
        f'{prefix}_parts = empty(({parts} * {rows} * {columns},), dtype="float32")',
        f'{prefix}_part_spreads = empty(({parts} * ({rows} + {columns}),), dtype="int32")',
        f'{prefix}_part_bounds = empty(({parts} * ({rows} + {columns}),), dtype="float32")',
    ]


STREAMED_BOTH_FAMILY = ContractionFamily((STREAMED_BOTH,), _takes, _propose, _predicted_ms, _emit)
