"""Float32 products by Hopper's warpgroups, both factors packed by the passes of `split`.

Persistent: as many blocks as there are multiprocessors take tiles in order, one thread of each asks
the copy engine for whole images into a ring of stages, and one or two warpgroups multiply straight
from shared memory.

Not here: halves (`maps`), a factor that is too large to be packed (`streamed`), clusters; any other
device than sm_90a.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.family import (
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.fitted_costs import leaving_ms
from kernelwright.tools.codegen.cuda.contractions.float32.split import (
    SCHEME,
    leaving,
    packed,
    packing_arguments,
    packing_ms,
    prepared_words,
    stores_in_cache,
    takes_whole,
    with_packing,
)
from kernelwright.tools.codegen.cuda.contractions.statistics.blocks import (
    counted_blocks,
    counting_ms,
    lacks_statistics,
)
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of, tiles_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import roofline_ms

SPLIT_WGMMA = "split_wgmma"
_TITLE = "Float32 as three products of scaled 16-bit parts, by products of warpgroups"
_ARCHITECTURE = "sm_90a"
# Rows x columns of tiles: 64 rows a warpgroup. Totals beside sums of 64 x 256 would not stay in
# registers.
_TILES = ((128, 128), (128, 192), (64, 192), (64, 128), (128, 64), (64, 64))
_STEP = 64
# What a row of a stage, a warp's strip of 16 x (32 + 8) words, and the first stage's alignment
# take.
_STAGE_BYTES, _STRIP_BYTES, _ALIGNMENT = 4 * _STEP, 16 * 40 * 4, 1024
_MOST_STAGES = 6
# The share of the data sheet's rate that products reach where shared memory is no limit. With parts
# promoted every 64 positions one module of 4096 cubed took 0.74 ms, packing included, on an H200
# (benchmarks/results/h200/products.md).
_SHARE = 0.72
# Of it, what one warpgroup alone leaves while it adds.
_ALONE = 0.8
# Multiply-adds and bytes of shared memory that a multiprocessor does in a cycle.
_MULTIPLIED, _SHARED_READ = 2048, 128
_CACHE_RATE = 2.2
_RAMP_STEPS = 2


def _takes(case: Case, contraction: Contraction) -> Fit:
    is_hopper = case.hardware.architecture == _ARCHITECTURE
    if not is_hopper or lacks_statistics(contraction, by_rows=True):
        return Fit.NO
    return takes_whole(case, contraction)


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=SPLIT_WGMMA,
            title=_TITLE,
            mechanism="Rows and columns are scaled by powers of two and split into two fp16 parts, "
            "written as ready images of shared memory. Persistent blocks fetch images by bulk "
            "copies while warpgroups multiply parts straight from shared memory, promoted to "
            f"float32 totals every 64 positions.{prepared_words(case, contraction)}",
            reason="Three fp16 products at Hopper's full rate take a fifth of the time of one in "
            "float32 on ordinary cores, and promotion keeps the error at float32's own.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="packed parts, bulk copies",
            compute="split products by warpgroups",
            parallel="persistent tiles",
            efficiency=0.85,
            launches=3,
        )
    ]


def _tile_ms(case: Case, contraction: Contraction, tile: tuple[int, int]) -> float:
    """Waves of tiles at the rate of products, or what they read of the last-level cache."""
    hardware, (rows, columns) = case.hardware, tile
    tiles = tiles_of(shape_of(contraction), rows, columns)
    share = _SHARE * (1.0 if rows > 64 else _ALONE)
    rate = share * (hardware.tensor_tflops or 0.0) / case.multiprocessors * 1e9
    steps = -(-contraction.k // _STEP)
    of_step = 2.0 * rows * columns * _STEP * SCHEME.products / rate
    of_step *= max(1.0, _shared_load(rows, columns))
    read = rows * SCHEME.bytes_left + columns * SCHEME.bytes_right
    by_cache = tiles * contraction.k * read / (hardware.bandwidth_gb_s * 1e6 * _CACHE_RATE)
    # A block's first tile waits for its copies; those of the others come meanwhile.
    waves = -(-tiles // case.multiprocessors)
    return max((waves * steps + _RAMP_STEPS) * of_step, by_cache)


def _shared_load(rows: int, columns: int) -> float:
    """Cycles that shared memory takes for a step, over those that its products take.

    Every warpgroup reads its 64 rows and all columns for each product, and copies bring both once.
    """
    read = rows // 64 * SCHEME.products * (64 + columns) * _STEP * 2.0
    copied = _STEP * (rows * SCHEME.bytes_left + columns * SCHEME.bytes_right)
    multiplied = rows * columns * _STEP * SCHEME.products / _MULTIPLIED
    return (read + copied) / _SHARED_READ / multiplied


def _ordered(case: Case, contraction: Contraction) -> list[tuple[int, int]]:
    return sorted(_TILES, key=lambda tile: _tile_ms(case, contraction, tile))


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = _ordered(case, contraction)[0]
    flops = shape_of(contraction).flops
    rate = flops / (_tile_ms(case, contraction, best) * 1e9)
    moved = sum(case.moved_bytes)
    product = roofline_ms(moved, flops, strategy, case.hardware, tflops=rate)
    product += counting_ms(contraction, case.hardware, case.multiprocessors, by_rows=True)
    return product + leaving_ms(case, contraction) + packing_ms(case, contraction)


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    printer = ElementPrinter(case.loop, contraction)
    tunables = _tunables(case, contraction, prefix)
    left, right = packed(case, contraction, printer)
    # 0.408 ms where 0.489 was the other way (16384 x 16384 x 64 on an H200).
    cache = stores_in_cache(case, tunables, evicts_first=True)
    ways = leaving(printer, contraction, by_rows=True, cache=cache)
    counted = counted_blocks(contraction, by_rows=True)
    tunables.add("DIRECT", ways.first if counted is None else (0,))
    source = render(
        "split_wgmma",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        shape=shape_of(contraction),
        needed=printer.tile_is_needed(("first_row", "BM"), ("first_column", "BN")),
        left=left,
        right=right,
        epilogue=ways.wide,
        direct=ways.direct,
        counted=counted and counted.values(case.loop, ways.wide.width),
    )
    rows, columns = tunables.named("{TILE} // 1000"), tunables.named("{TILE} % 1000")
    launches = [_launch(case, contraction, tunables, f"{prefix}_wgmma")]
    arguments = [*contraction_arguments(contraction), *packing_arguments(prefix, left, right)]
    factors = ((left, rows), (right, columns))
    return with_packing(contraction, prefix, factors, source, arguments, launches, counted=counted)


def _shared_bytes() -> str:
    """Stages, strips and barriers, and what aligns the first stage."""
    stages = f"{{STAGES}} * (({{TILE}} // 1000 + {{TILE}} % 1000) * {_STAGE_BYTES} + 16)"
    return f"{stages} + {{TILE}} // 64000 * {4 * _STRIP_BYTES} + {_ALIGNMENT}"


def _tunables(case: Case, contraction: Contraction, prefix: str) -> Tunables:
    ordered = _ordered(case, contraction)
    room = case.shared_bytes - _ALIGNMENT - 8 * _STRIP_BYTES
    stages = min(_MOST_STAGES, room // (sum(ordered[0]) * _STAGE_BYTES + 16))
    tunables = Tunables(prefix)
    tunables.add("TILE", [1000 * rows + columns for rows, columns in ordered])
    tunables.add("STAGES", (stages, *(n for n in (2, 3, 4, 6) if n != stages)))
    tunables.add("GROUP", (8, 16, 4, 1))
    return tunables.require(f"{_shared_bytes()} <= {case.shared_bytes}")


def _launch(case: Case, contraction: Contraction, tunables: Tunables, kernel: str) -> Launch:
    """A persistent block a multiprocessor, of a warpgroup for each 64 rows and one that copies."""
    tiles = f"ceil_div({contraction.m}, {{TILE}} // 1000)"
    tiles += f" * ceil_div({contraction.n}, {{TILE}} % 1000)"
    return Launch(
        kernel=kernel,
        grid=tunables.named(f"min({case.multiprocessors}, {contraction.batches} * {tiles})"),
        block=tunables.named("({TILE} // 64000 + 1) * 128"),
        shared=tunables.named(_shared_bytes()),
    )


SPLIT_WGMMA_FAMILY = ContractionFamily(
    (SPLIT_WGMMA,), _takes, _propose, _predicted_ms, _emit, statistics=True
)
