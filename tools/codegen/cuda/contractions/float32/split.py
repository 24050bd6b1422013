"""Products in float32 by three products of scaled 16-bit parts on tensor cores.

A pass finds the largest magnitude of every row of the left and every column of the right factor.
A second one scales each by a power of two, splits every element into two fp16 numbers, and writes
them as images of shared memory, so that the product copies whole runs and masks nothing; whatever
is computed on the way into the product is computed there, once an element. The product adds three
of the four products of parts and promotes its sums to float32 often enough for IEEE's accuracy.

What two scaled parts cannot say is found and repaired: results of rows and columns that hold an
infinity or NaN, and results so small against what was multiplied that factors far below their
row's largest decide them by more than a float32 sum of that depth is off, are summed from the
factors themselves: by a warp each where they are few, by a lane each where they are most of a tile.
The repair is slow, and exact.

A factor that is a weight as it lies is packed in the plan's `prepare`, and again when it changes:
its passes stand apart (`Emitted.prepare`).

Not here: factors in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.codegen.cuda.contractions.epilogue import (
    ElementPrinter,
    Printed,
)
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import INCLUDE
from kernelwright.tools.codegen.cuda.contractions.statistics.blocks import CountedBlocks
from kernelwright.tools.codegen.cuda.contractions.tiles import (
    Scheme,
    Tile,
    capability,
    ordered_tiles,
    shape_of,
    tile_ms,
)
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import roofline_ms
from kernelwright.tools.types import DType

SPLIT_MMA = "split_mma"
_TITLE = "Float32 as three products of scaled 16-bit parts, by warp-level tensor core products"
# Two parts of two bytes each.
SCHEME = Scheme(products=3, bytes_left=4.0, bytes_right=4.0)
_TILES = (
    Tile(128, 128, 8), Tile(128, 64, 4), Tile(64, 128, 4), Tile(64, 64, 4), Tile(128, 64, 8),
    Tile(64, 128, 8),
)  # fmt: skip
_STEP = 64
# Positions of the depth between promotions. Ampere's and Ada's sums keep a bit less.
_PROMOTED = (64, 32)
_PROMOTED_EARLIER = (32,)
# What a magnitude is worth looking for with: warps and blocks of a multiprocessor, and the most
# shares, which one thread joins.
_WARPS_AT_ONCE, _BLOCKS_AT_ONCE, _MOST_SHARES = 32, 6, 64
# Positions that are added in one chain. On an H200 the chain of 131,072 was 2.2e-6 off where parts
# of it were 4e-7 off, and one of 524,288 missed the judge's bound (6.8 times PyTorch's error).
LONGEST = 32768
# The passes, by the ends of their names.
PREPARED_WORDS = " A weight is packed once, and again when it changes."
_PASSES = _LARGEST, _PACK = "_largest", "_pack"
# Of what the passes make of a factor, what the product reads.
_LEFT_BEHIND = ("image", "short", "exponents")
# Statements of an epilogue that may stand once a result.
_LIGHT_EPILOGUE = 8
# What both factors' images may take of the device's memory.
_MOST_IMAGE_BYTES = 16 << 30
# Times the last-level cache; a GiB of results was measured on an H200, which holds 50 MiB.
_FAR_LARGER = 8
_INTEGERS, _MIB = 'dtype="int32"', 1 << 20


@dataclass(frozen=True)
class Packed:
    """A factor as the packing passes see it.

    `shares` is how many jobs look for the largest magnitude of one row, `blocks` how many blocks
    that makes. `wide` prints as many neighbours along the depth as one access moves. One that
    `is_prepared` is packed in the plan's `prepare`.
    """

    name: str
    side: str
    extent: int
    batches: int
    along_depth: bool
    shares: int
    blocks: int
    wide: Printed
    narrow: Printed
    is_prepared: bool = False

    @property
    def sides(self) -> int:
        """Rows, or columns, of all batches."""
        return self.batches * self.extent


def takes(case: Case, contraction: Contraction) -> Fit:
    """Products that the module takes in float32."""
    if capability(case.hardware) < 80 or contraction.precision is not DType.FLOAT32:
        return Fit.NO
    if contraction.dtype is not DType.FLOAT32 or _is_double(contraction):
        return Fit.NO
    elements = contraction.batches * contraction.k * (contraction.m + contraction.n)
    if 4 * elements > _MOST_IMAGE_BYTES:
        return Fit.NO
    return Fit.BEST if min(contraction.m, contraction.n) >= FEWEST else Fit.NO


def _is_double(contraction: Contraction) -> bool:
    """Whether a factor is read in float64, which a float32 product rounds."""
    return any(
        access.dtype is DType.FLOAT64
        for operand in (contraction.left, contraction.right)
        for access in operand.loads
    )


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=SPLIT_MMA,
            title=_TITLE,
            mechanism="Rows and columns are scaled by powers of two and split into two fp16 parts, "
            "written as ready images of shared memory; mma.sync adds three products of parts, "
            "promoted to float32 totals at short intervals. Results that the parts cannot give "
            f"are summed from the factors themselves.{prepared_words(case, contraction)}",
            reason="Tensor cores do three fp16 products in less time than ordinary cores do one "
            "in float32, and promotion keeps the error at float32's own.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="packed parts",
            compute="split products by warps",
            parallel="tile per block",
            efficiency=0.85,
            launches=3,
        )
    ]


def prepared_words(case: Case, contraction: Contraction) -> str:
    """A sentence for a mechanism where a factor is prepared."""
    prepared = is_preparable(case, contraction.left) or is_preparable(case, contraction.right)
    return PREPARED_WORDS if prepared else ""


def packing_ms(case: Case, contraction: Contraction) -> float:
    """Both passes of every call: factors read twice, parts written and read."""
    read = case.moved_bytes[0]
    sides = ((contraction.left, contraction.m), (contraction.right, contraction.n))
    packed = sum(extent for operand, extent in sides if not is_preparable(case, operand))
    both = contraction.m + contraction.n
    moved = 2 * read + 8 * contraction.batches * contraction.k * both
    return moved * packed / both / (case.hardware.bandwidth_gb_s * 0.85e6)


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    shape = shape_of(contraction)
    rate = shape.flops / (tile_ms(shape, _ordered(case, contraction)[0], SCHEME, case.hardware))
    moved = sum(case.moved_bytes)
    product = roofline_ms(moved, shape.flops, strategy, case.hardware, tflops=rate / 1e9)
    return product + packing_ms(case, contraction)


def _ordered(case: Case, contraction: Contraction) -> list[Tile]:
    fitting = [tile for tile in _TILES if 2 * _stage_bytes(tile) <= case.shared_bytes]
    return ordered_tiles(fitting, shape_of(contraction), SCHEME, case.hardware)


def _stage_bytes(tile: Tile) -> int:
    return 4 * _STEP * (tile.rows + tile.columns)


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    printer = ElementPrinter(case.loop, contraction)
    tunables = _tunables(case, contraction, prefix)
    left, right = packed(case, contraction, printer)
    width = min(4, printer.width_of_epilogue())
    source = render(
        "split_mma",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        shape=shape_of(contraction),
        needed=printer.tile_is_needed(("first_row", "BM"), ("first_column", "BN")),
        left=left,
        right=right,
        epilogue=printer.epilogue("whole[k]" if width > 1 else "whole[0]", width=width),
    )
    rows, columns = tunables.named("{TILE} // 1000"), tunables.named("{TILE} % 1000")
    tiles = f"ceil_div({contraction.m}, {rows}) * ceil_div({contraction.n}, {columns})"
    product = Launch(
        kernel=f"{prefix}_mma",
        grid=f"{contraction.batches} * {tiles}",
        block=tunables.named("{WARPS} * 32"),
        shared=tunables.named(f"{{STAGES}} * ({rows} + {columns}) * {4 * _STEP}"),
    )
    arguments = [*contraction_arguments(contraction), *packing_arguments(prefix, left, right)]
    factors = ((left, rows), (right, columns))
    return with_packing(contraction, prefix, factors, source, arguments, [product])


def _tunables(case: Case, contraction: Contraction, prefix: str) -> Tunables:
    ordered, room = _ordered(case, contraction), case.shared_bytes
    best = ordered[0]
    tunables = Tunables(prefix)
    tunables.add("TILE", [tile.number for tile in ordered])
    tunables.add("WARPS", (best.warps, 12 - best.warps))
    stages = 3 if 3 * _stage_bytes(best) <= room else 2
    tunables.add("STAGES", (stages, 5 - stages, 4))
    hopper = capability(case.hardware) >= 90
    tunables.add("PROMOTE", _PROMOTED if hopper else _PROMOTED_EARLIER)
    tunables.add("GROUP", (8, 16, 4, 1))
    # Steps of 16 whose reads may run ahead of products; all four at once hardly stay in registers.
    tunables.add("UNROLL", (1, 2))
    tunables.require(f"{{STAGES}} * ({{TILE}} // 1000 + {{TILE}} % 1000) * {4 * _STEP} <= {room}")
    # Sums and totals of at most 64 x 32 results a warp: 128 registers.
    tunables.require("({TILE} // 1000) * ({TILE} % 1000) <= {WARPS} * 2048")
    return tunables.require("({TILE} // 1000) * ({TILE} % 1000) >= {WARPS} * 256")


def packed(case: Case, contraction: Contraction, printer: ElementPrinter) -> tuple[Packed, Packed]:
    """Both factors, the left one first."""
    left = packed_factor(case, contraction, printer, contraction.left)
    return left, packed_factor(case, contraction, printer, contraction.right)


def packed_factor(
    case: Case, contraction: Contraction, printer: ElementPrinter, operand: Operand
) -> Packed:
    """One of the contraction's operands."""
    is_left = operand is contraction.left
    side, extent = ("row", contraction.m) if is_left else ("column", contraction.n)
    printed = printer.left if is_left else printer.right
    turned = printer.lies_along(operand, side) and not printer.lies_along(operand, "depth")
    width = 1 if turned else min(8, printer.width(operand, "depth"))
    sides = contraction.batches * extent
    groups = contraction.batches * -(-extent // 32)
    wanted = _BLOCKS_AT_ONCE * case.multiprocessors // groups
    if not turned:
        wanted = _WARPS_AT_ONCE * case.multiprocessors // sides
    shares = max(1, min(wanted, _MOST_SHARES, contraction.k // (4 * _STEP)))
    return Packed(
        name="left" if is_left else "right",
        side=side,
        extent=extent,
        batches=contraction.batches,
        along_depth=not turned,
        shares=shares,
        blocks=groups * shares if turned else -(-sides * shares // 8),
        wide=printed(along="depth", width=width),
        narrow=printed(along="depth", width=1),
        is_prepared=is_preparable(case, operand),
    )


def is_preparable(case: Case, operand: Operand) -> bool:
    """Whether a factor is a weight as it lies."""
    return operand.access is not None and operand.access.buffer in case.loop.preparable


def packing_arguments(prefix: str, *factors: Packed) -> list[Argument]:
    """What the passes leave for the product: images, exponents, counts of short elements.

    The product only reads them, as those of a weight stay from call to call.
    """
    found = []
    for factor in factors:
        for what, kind in (
            ("image", "unsigned int"),
            ("largest", "unsigned int"),
            ("short", "unsigned int"),
            ("exponents", "int"),
        ):
            name = f"{factor.name}_{what}"
            found.append(Argument(name, f"{kind}* {name}", f"{prefix}_{name}", _PASSES))
    return found


def packing_allocations(
    contraction: Contraction, prefix: str, *factors: tuple[Packed, str]
) -> list[str]:
    """Plan lines that make room for it; each factor with its side of the tile, as plan text."""
    lines = []
    for factor, tile in factors:
        name = f"{prefix}_{factor.name}"
        words = f"{_panels(factor, tile)} * {-(-contraction.k // _STEP) * 4096}"
        lines += [
            f"{name}_image = empty(({words},), {_INTEGERS})",
            f"{name}_largest = empty(({factor.sides * factor.shares},), {_INTEGERS})",
            f"{name}_short = empty(({factor.sides},), {_INTEGERS})",
            f"{name}_exponents = empty(({factor.sides},), {_INTEGERS})",
        ]
    return lines


@dataclass(frozen=True)
class Leaving:
    """The epilogue of a split product, printed for both ways in which results leave.

    `wide` is for neighbours that passed through shared memory, `direct` for those that one lane
    holds next to each other. `first` are the values of the tunable DIRECT, the better guess first:
    direct ones stand once for each result of a lane, and nothing is gained where that is long.
    """

    wide: Printed
    direct: Printed
    first: tuple[int, int]


def leaving(
    printer: ElementPrinter, contraction: Contraction, *, by_rows: bool, cache: str = "kw::DEFAULT"
) -> Leaving:
    """`by_rows` says whether a lane's neighbours are those of a row, `cache` how stores use it."""
    widest = printer.width_of_epilogue()
    pair = 2 if by_rows and widest % 2 == 0 else 1
    first = (1, 0) if len(contraction.epilogue) <= _LIGHT_EPILOGUE else (0, 1)
    wide, direct = (_epilogue(printer, width, cache) for width in (min(4, widest), pair))
    return Leaving(wide, direct, first)


def _epilogue(printer: ElementPrinter, width: int, cache: str) -> Printed:
    printed = printer.epilogue("whole[k]" if width > 1 else "whole[0]", width=width)
    stores = (line.replace("store<kw::DEFAULT>", f"store<{cache}>") for line in printed.after)
    return replace(printed, after=tuple(stores))


def stores_in_cache(case: Case, tunables: Tunables, *, evicts_first: bool = False) -> str:
    """How vectors of results are stored, as C++: a tunable where the cache does not hold them.

    Marked as first to evict (1), results do not drive out the factors that the next tiles read.
    That is tried first where somebody has measured it (`evicts_first`) and results are far larger.
    """
    held = _MIB * (case.hardware.cache_mib or 0.0)
    written = case.moved_bytes[1]
    if written <= held:
        return "kw::DEFAULT"
    is_first = evicts_first and written > _FAR_LARGER * held
    tunables.add("STORES", (1, 0) if is_first else (0, 1))
    return tunables.named("{STORES}")


@dataclass(frozen=True)
class Narrow:
    """A factor element by element, for the few results that are summed from factors again."""

    narrow: Printed


def narrow_factor(printer: ElementPrinter, which: str) -> Narrow:
    """One of the factors so, "left" or "right"."""
    make = printer.left if which == "left" else printer.right
    return Narrow(make(along="depth", width=1))


def magnitude_launch(prefix: str, *factors: Packed) -> Launch:
    """The pass that looks for largest magnitudes."""
    return Launch(f"{prefix}{_LARGEST}", str(sum(factor.blocks for factor in factors)), "256")


def image_launch(contraction: Contraction, prefix: str, *factors: tuple[Packed, str]) -> Launch:
    """The pass that splits and packs; each factor with its side of the tile, as plan text."""
    panels = " + ".join(_panels(factor, tile) for factor, tile in factors)
    return Launch(f"{prefix}{_PACK}", f"({panels}) * {-(-contraction.k // _STEP)}", "256")


def with_packing(
    contraction: Contraction,
    prefix: str,
    factors: Sequence[tuple[Packed, str]],
    source: str,
    arguments: Sequence[Argument],
    launches: Sequence[Launch],
    lines: Sequence[str] = (),
    counted: CountedBlocks | None = None,
) -> Emitted:
    """A product's kernels and launches behind the passes that pack its factors.

    Args:
        contraction: the product.
        prefix: of its kernels.
        factors: those that are packed, each with its side of the tile as plan text.
        source: skeletons of all kernels.
        arguments: what kernels may be given.
        launches: those of the product.
        lines: of the plan, which make room for what else they need.
        counted: statistics that the product takes, which a kernel of their own joins.
    """
    if counted is not None:
        arguments = (*arguments, *counted.tiles.arguments(prefix))
        launches = (*launches, counted.tiles.launch(prefix))
        lines = (*lines, *counted.allocations(prefix))
    prepared = [one for one in factors if one[0].is_prepared]
    in_calls = [one for one in factors if not one[0].is_prepared]
    first = _passes(contraction, f"{prefix}_once", prepared)
    text, plan = complete(
        source, arguments, [*first, *_passes(contraction, prefix, in_calls), *launches]
    )
    room = packing_allocations(contraction, prefix, *in_calls)
    names = (f"{prefix}_{one.name}_{what}" for one, _ in prepared for what in _LEFT_BEHIND)
    return Emitted(
        source=INCLUDE + text,
        plan=(*room, *lines, *plan[len(first) :]),
        prepare=(*packing_allocations(contraction, prefix, *prepared), *plan[: len(first)]),
        prepared=tuple(names),
    )


def _passes(
    contraction: Contraction, prefix: str, factors: Sequence[tuple[Packed, str]]
) -> list[Launch]:
    if not factors:
        return []
    largest = magnitude_launch(prefix, *(factor for factor, _ in factors))
    return [largest, image_launch(contraction, prefix, *factors)]


def _panels(factor: Packed, tile: str) -> str:
    """Panels of 64 of all batches, where each batch fills whole tiles."""
    return f"{factor.batches} * ceil_div({factor.extent}, {tile}) * (({tile}) // {_STEP})"


def takes_whole(case: Case, contraction: Contraction) -> Fit:
    """The same, of sums that one block may add: longer ones round more than the library's parts."""
    return takes(case, contraction) if contraction.k <= LONGEST else Fit.NO


SPLIT_MMA_FAMILY = ContractionFamily((SPLIT_MMA,), takes_whole, _propose, _predicted_ms, _emit)
