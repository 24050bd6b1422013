"""Products by Hopper's warpgroup instructions: halves as they are, and float32 by parts.

Both are persistent: as many blocks as there are multiprocessors take tiles in order, a warpgroup of
each fills a ring of stages, and one or two others multiply straight from shared memory. Float32 is
packed by the passes of `split`, so that one thread asks the copy engine for whole images. Halves
are copied from where they lie by all threads of a warpgroup, 16 bytes at a time.

Not here: halves that tensor maps describe (`maps`), which spares those threads; factors of halves
that do not lie in 16-byte pieces or are computed on the way (`mma_tiles` takes them); clusters; any
other device than sm_90a.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.codegen.cuda.contractions.epilogue import (
    ElementPrinter,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.family import FEWEST, ContractionFamily
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import INCLUDE, factor_of, half_type
from kernelwright.tools.codegen.cuda.contractions.split import (
    SCHEME,
    image_launch,
    leaving,
    magnitude_launch,
    packed,
    packing_allocations,
    packing_arguments,
    packing_ms,
    takes_whole,
)
from kernelwright.tools.codegen.cuda.contractions.tiles import Scheme, shape_of, tiles_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import loop_bytes, roofline_ms

SPLIT_WGMMA, WGMMA_TILES = "split_wgmma", "wgmma_tiles"
_TITLE = "Float32 as three products of scaled 16-bit parts, by products of warpgroups"
_TILES_TITLE = "Tiles of 16-bit factors by products of warpgroups"
_ARCHITECTURE = "sm_90a"
# Rows x columns of tiles: 64 rows a warpgroup. Totals beside sums of 64 x 256 would not stay in
# registers.
_TILES = ((128, 128), (128, 192), (64, 192), (64, 128), (128, 64), (64, 64))
_HALF_TILES = ((128, 256), (128, 192), (128, 128), (64, 256), (64, 128), (128, 64), (64, 64))
_STEP = 64
# What a stage, a warp's strip of 16 x (32 + 8) words, and the alignment of the first stage take.
_STAGE_BYTES, _STRIP_BYTES, _ALIGNMENT = 4 * _STEP, 16 * 40 * 4, 1024
_MOST_STAGES = 6
# The share of the data sheet's rate that products reach where shared memory is no limit. With parts
# promoted every 64 positions one module of 4096 cubed took 0.69 ms, packing included, on an H200;
# halves of that size took 0.244 ms.
_SHARE, _HALF_SHARE = 0.72, 0.6
# Of it, what one warpgroup alone leaves while it adds.
_ALONE = 0.8
# Multiply-adds and bytes of shared memory that a multiprocessor does in a cycle.
_MULTIPLIED, _SHARED_READ = 2048, 128
_CACHE_RATE = 2.2
_RAMP_STEPS = 2


def _takes_split(case: Case, contraction: Contraction) -> Fit:
    is_hopper = case.hardware.architecture == _ARCHITECTURE
    return takes_whole(case, contraction) if is_hopper else Fit.NO


def _propose_split(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=SPLIT_WGMMA,
            title=_TITLE,
            mechanism="Rows and columns are scaled by powers of two and split into two fp16 parts, "
            "written as ready images of shared memory. Persistent blocks fetch images by bulk "
            "copies while warpgroups multiply parts straight from shared memory, promoted to "
            "float32 totals every 64 positions.",
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


def _tile_ms(
    case: Case, contraction: Contraction, tile: tuple[int, int], scheme: Scheme = SCHEME
) -> float:
    """Waves of tiles at the rate of products, or what they read of the last-level cache."""
    hardware, (rows, columns) = case.hardware, tile
    tiles = tiles_of(shape_of(contraction), rows, columns)
    share = _SHARE if scheme is SCHEME else _HALF_SHARE
    share *= 1.0 if rows > 64 else _ALONE
    rate = share * (hardware.tensor_tflops or 0.0) / case.multiprocessors * 1e9
    steps = -(-contraction.k // _STEP)
    of_step = 2.0 * rows * columns * _STEP * scheme.products / rate
    of_step *= max(1.0, _shared_load(rows, columns, scheme))
    read = rows * scheme.bytes_left + columns * scheme.bytes_right
    by_cache = tiles * contraction.k * read / (hardware.bandwidth_gb_s * 1e6 * _CACHE_RATE)
    # A block's first tile waits for its copies; those of the others come meanwhile.
    waves = -(-tiles // case.multiprocessors)
    return max((waves * steps + _RAMP_STEPS) * of_step, by_cache)


def _shared_load(rows: int, columns: int, scheme: Scheme) -> float:
    """Cycles that shared memory takes for a step, over those that its products take.

    Every warpgroup reads its 64 rows and all columns for each product, and copies bring both once.
    """
    read = rows // 64 * scheme.products * (64 + columns) * _STEP * 2.0
    copied = _STEP * (rows * scheme.bytes_left + columns * scheme.bytes_right)
    multiplied = rows * columns * _STEP * scheme.products / _MULTIPLIED
    return (read + copied) / _SHARED_READ / multiplied


def _ordered(
    case: Case, contraction: Contraction, scheme: Scheme = SCHEME
) -> list[tuple[int, int]]:
    tiles = _TILES if scheme is SCHEME else _HALF_TILES
    return sorted(tiles, key=lambda tile: _tile_ms(case, contraction, tile, scheme))


def _predicted_split(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = _ordered(case, contraction)[0]
    flops = shape_of(contraction).flops
    rate = flops / (_tile_ms(case, contraction, best) * 1e9)
    moved = sum(loop_bytes(case.loop))
    product = roofline_ms(moved, flops, strategy, case.hardware, tflops=rate)
    return product + packing_ms(case, contraction)


def _emit_split(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    printer = ElementPrinter(case.loop, contraction)
    tunables = _tunables(case, contraction, prefix, SCHEME)
    left, right = packed(case, contraction, printer)
    ways = leaving(printer, contraction, by_rows=True)
    tunables.add("DIRECT", ways.first)
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
    )
    rows, columns = tunables.named("{TILE} // 1000"), tunables.named("{TILE} % 1000")
    launches = [
        magnitude_launch(prefix, left, right),
        image_launch(contraction, prefix, (left, rows), (right, columns)),
        _launch(case, contraction, tunables, f"{prefix}_wgmma", SCHEME),
    ]
    arguments = [*contraction_arguments(contraction), *packing_arguments(prefix, left, right)]
    text, plan = complete(source, arguments, launches)
    lines = packing_allocations(contraction, prefix, (left, rows), (right, columns))
    return Emitted(source=INCLUDE + text, plan=(*lines, *plan))


def _shared_bytes(scheme: Scheme) -> str:
    """Stages, strips and barriers, and what aligns the first stage."""
    stages = f"{{STAGES}} * (({{TILE}} // 1000 + {{TILE}} % 1000) * {_stage_bytes(scheme)} + 16)"
    return f"{stages} + {{TILE}} // 64000 * {4 * _STRIP_BYTES} + {_ALIGNMENT}"


def _stage_bytes(scheme: Scheme) -> int:
    """Of one row or column."""
    return int(_STEP * scheme.bytes_left)


def _tunables(case: Case, contraction: Contraction, prefix: str, scheme: Scheme) -> Tunables:
    ordered = _ordered(case, contraction, scheme)
    room = case.shared_bytes - _ALIGNMENT - 8 * _STRIP_BYTES
    stages = min(_MOST_STAGES, room // (sum(ordered[0]) * _stage_bytes(scheme) + 16))
    tunables = Tunables(prefix)
    tunables.add("TILE", [1000 * rows + columns for rows, columns in ordered])
    tunables.add("STAGES", (stages, *(n for n in (2, 3, 4, 6) if n != stages)))
    tunables.add("GROUP", (8, 16, 4, 1))
    return tunables.require(f"{_shared_bytes(scheme)} <= {case.shared_bytes}")


_HALVES = Scheme()


def _takes_halves(case: Case, contraction: Contraction) -> Fit:
    if case.hardware.architecture != _ARCHITECTURE or half_type(contraction) is None:
        return Fit.NO
    if min(contraction.m, contraction.n) < FEWEST:
        return Fit.NO
    printer = ElementPrinter(case.loop, contraction)
    factors = (factor_of(printer, contraction, which) for which in ("left", "right"))
    return Fit.BEST if all(factor.copied for factor in factors) else Fit.NO


def _propose_halves(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=WGMMA_TILES,
            title=_TILES_TITLE,
            mechanism="Persistent blocks: one warpgroup copies both factors' steps into a ring of "
            "swizzled stages while others multiply straight from shared memory by wgmma; the "
            "epilogue runs on the sums before they are stored once.",
            reason="Hopper's tensor cores reach their full rate only when warpgroups multiply "
            "from shared memory, and nothing between product and result goes through memory.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="ring of copies",
            compute="tensor cores by warpgroups",
            parallel="persistent tiles",
            efficiency=0.85,
        )
    ]


def _predicted_halves(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = _ordered(case, contraction, _HALVES)[0]
    flops = shape_of(contraction).flops
    rate = flops / (_tile_ms(case, contraction, best, _HALVES) * 1e9)
    return roofline_ms(sum(loop_bytes(case.loop)), flops, strategy, case.hardware, tflops=rate)


def _emit_halves(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    kind = half_type(contraction)
    if kind is None:
        raise ValueError(f"{case.loop.name}: {name} needs a product in a half type")
    printer = ElementPrinter(case.loop, contraction)
    tunables = _tunables(case, contraction, prefix, _HALVES)
    width = min(8, printer.width_of_epilogue())
    source = render(
        "group_tiles",
        title=_TILES_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        type=c_type(kind),
        shape=shape_of(contraction),
        needed=printer.tile_is_needed(("first_row", "BM"), ("first_column", "BN")),
        left=factor_of(printer, contraction, "left"),
        right=factor_of(printer, contraction, "right"),
        epilogue=printer.epilogue("sum[k]" if width > 1 else "sum[0]", width=width),
    )
    launch = _launch(case, contraction, tunables, f"{prefix}_groups", _HALVES)
    text, plan = complete(source, contraction_arguments(contraction), [launch])
    return Emitted(source=INCLUDE + text, plan=plan)


def _launch(
    case: Case, contraction: Contraction, tunables: Tunables, kernel: str, scheme: Scheme
) -> Launch:
    """A persistent block a multiprocessor, of a warpgroup for each 64 rows and one that copies."""
    tiles = f"ceil_div({contraction.m}, {{TILE}} // 1000)"
    tiles += f" * ceil_div({contraction.n}, {{TILE}} % 1000)"
    return Launch(
        kernel=kernel,
        grid=tunables.named(f"min({case.multiprocessors}, {contraction.batches} * {tiles})"),
        block=tunables.named("({TILE} // 64000 + 1) * 128"),
        shared=tunables.named(_shared_bytes(scheme)),
    )


SPLIT_WGMMA_FAMILY = ContractionFamily(
    (SPLIT_WGMMA,), _takes_split, _propose_split, _predicted_split, _emit_split
)
WGMMA_FAMILY = ContractionFamily(
    (WGMMA_TILES,), _takes_halves, _propose_halves, _predicted_halves, _emit_halves
)
