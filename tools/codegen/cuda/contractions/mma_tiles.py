"""Products of 16-bit factors by the tensor cores' warp instructions (sm_80 and later).

For products that the module takes in fp16 or bf16, so that their results are rounded to that type:
factors are multiplied exactly and added in float32, as the library does. Epilogues are computed in
float32 on the way out, prologues on the way in and rounded once. Not here: TF32, and few tiles with
a long depth, which want the depth shared by several blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.fitted_costs import leaving_ms
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
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Axis, Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import roofline_ms
from kernelwright.tools.types import DType

MMA_TILES = "mma_tiles"
HALVES = (DType.FLOAT16, DType.BFLOAT16)
INCLUDE = '#include "kernelwright_mma.cuh"\n'
# Elements of a 16-byte piece.
_PIECE = 8
_SCHEME = Scheme()
_TILES = (
    Tile(128, 256, 8), Tile(256, 128, 8), Tile(128, 128, 8), Tile(128, 128, 4), Tile(128, 64, 4),
    Tile(64, 128, 4), Tile(64, 64, 4), Tile(64, 32, 4), Tile(32, 64, 4), Tile(32, 32, 4),
    Tile(64, 256, 8), Tile(256, 64, 8), Tile(32, 128, 4), Tile(128, 32, 4),
)  # fmt: skip
_TITLE = "Tiles of 16-bit factors by warp-level tensor core products"
_MOST_TILES = 8
# What a step of the ring takes at least, however little is multiplied (a block of 512 steps took
# 0.11 ms), and what a block takes before its first product and after its last: both on an H200
# (benchmarks/results/h200/gemm_cuda_l2.jsonl.gz).
_RING_STEP, _RING_STEP_MS, _FILLED_MS = 32, 0.00022, 0.002
# Of what results cost (`fitted_costs`) what is left here where eight neighbours leave at once, as
# other blocks multiply meanwhile; fewer take as much more. Fitted to six kernels of a ResNet stage
# in bfloat16 on an H200 that took 58 to 235 us; predictions are 0.88 to 1.33 times that
# (benchmarks/results/h200/model_kernels_convolutions.jsonl).
_LEFT_OF_RESULTS = 0.45
# A factor that is computed on the way in, or read element by element, holds up its tile for so long
# an element; of one kernel there, a convolution that moves by two.
_ELEMENT_NS = 0.75


@dataclass(frozen=True)
class Factor:
    """A factor as the skeleton fills its tile.

    `along_depth` says whether 16-byte pieces lie along the depth; `copied`, whether they are copied
    as they are, from `buffer` at `offset` behind the lines `decode`; else `lines` compute `width`
    neighbours at a time.
    """

    name: str
    side: str
    extent: str
    along_depth: str
    copied: bool
    decode: tuple[str, ...]
    buffer: str
    offset: str
    lines: tuple[str, ...]
    width: int


def half_type(contraction: Contraction) -> DType | None:
    """The 16-bit type that the module multiplies in; None where it does not."""
    return contraction.precision if contraction.precision in HALVES else None


def _takes(case: Case, contraction: Contraction) -> Fit:
    if capability(case.hardware) < 80 or half_type(contraction) is None:
        return Fit.NO
    return Fit.BEST if min(contraction.m, contraction.n) >= FEWEST else Fit.NO


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=MMA_TILES,
            title=_TITLE,
            mechanism="Blocks compute tiles of results: a ring of asynchronous copies brings both "
            "factors' next steps while mma.sync multiplies what is there, and the epilogue runs "
            "on the sums before they are stored once.",
            reason="Tensor cores multiply 16-bit factors many times faster than ordinary cores, "
            "and nothing between the product and its result goes through memory.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="ring of copies",
            compute="tensor cores by warps",
            parallel="tile per block",
            efficiency=0.85,
        )
    ]


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    """The best tile's time, never less than that of the bytes."""
    shape = shape_of(contraction)
    best = _ordered(case, contraction)[0]
    by_ring = shape.k / _RING_STEP * _RING_STEP_MS
    product = _FILLED_MS + max(tile_ms(shape, best, _SCHEME, case.hardware), by_ring)
    product += _results_ms(case, contraction) + _computed_ms(case, contraction, best)
    rate = shape.flops / (product * 1e9)
    moved = sum(case.moved_bytes)
    return roofline_ms(moved, shape.flops, strategy, case.hardware, tflops=rate)


def _results_ms(case: Case, contraction: Contraction) -> float:
    """What results cost behind their sums."""
    width = min(_PIECE, ElementPrinter(case.loop, contraction).width_of_epilogue())
    narrow = _PIECE / width
    return _LEFT_OF_RESULTS * narrow * leaving_ms(case, contraction)


def _computed_ms(case: Case, contraction: Contraction, tile: Tile) -> float:
    """What factors cost that no copy brings: every tile of the other side computes them again."""
    printer, elements = ElementPrinter(case.loop, contraction), 0.0
    left = "left", contraction.m * -(-contraction.n // tile.columns)
    right = "right", contraction.n * -(-contraction.m // tile.rows)
    for which, lines in (left, right):
        factor = factor_of(printer, contraction, which)
        if not factor.copied:
            elements += contraction.batches * lines * contraction.k / factor.width
    return elements * _ELEMENT_NS / 1e6 / case.multiprocessors


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    kind = half_type(contraction)
    if kind is None:
        raise ValueError(f"{case.loop.name}: {name} needs a product in a half type")
    printer = ElementPrinter(case.loop, contraction)
    tunables = _tunables(case, contraction, prefix)
    width = min(_PIECE, printer.width_of_epilogue())
    source = render(
        "mma_tiles",
        title=_TITLE,
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
    rows, columns = "{TILE} // 1000", "{TILE} % 1000"
    grid = f"{contraction.batches} * ceil_div({contraction.m}, {rows})"
    launch = Launch(
        kernel=f"{prefix}_mma",
        grid=tunables.named(f"{grid} * ceil_div({contraction.n}, {columns})"),
        block=tunables.named("{WARPS} * 32"),
        shared=tunables.named(f"{{STAGES}} * ({rows} + {columns}) * {{DEPTH}} * 2"),
    )
    text, plan = complete(source, contraction_arguments(contraction), [launch])
    return Emitted(source=INCLUDE + text, plan=plan)


def _ordered(case: Case, contraction: Contraction) -> list[Tile]:
    return ordered_tiles(_TILES, shape_of(contraction), _SCHEME, case.hardware)


def _tunables(case: Case, contraction: Contraction, prefix: str) -> Tunables:
    best, *others = _ordered(case, contraction)
    numbers = list(dict.fromkeys([best.number, *(tile.number for tile in others)]))
    room = case.shared_bytes
    stages = _stages(best, 32, room)
    tunables = Tunables(prefix)
    tunables.add("TILE", numbers[:_MOST_TILES])
    tunables.add("WARPS", (best.warps, 12 - best.warps))
    tunables.add("DEPTH", (32, 64)).add("STAGES", (stages, 3, 4, 2))
    tunables.add("GROUP", (8, 16, 4, 1))
    sides = "({TILE} // 1000 + {TILE} % 1000)"
    tunables.require(f"{{STAGES}} * {sides} * {{DEPTH}} * 2 <= {room}")
    # A warp's part has at most 64 x 64 results, which are 128 registers, and at least 16 x 16.
    tunables.require("({TILE} // 1000) * ({TILE} % 1000) <= {WARPS} * 4096")
    return tunables.require("({TILE} // 1000) * ({TILE} % 1000) >= {WARPS} * 256")


def _stages(tile: Tile, depth: int, room: int) -> int:
    """As many as fit, four at most: more only take room from a second block."""
    return max(2, min(4, room // ((tile.rows + tile.columns) * depth * 2)))


def factor_of(printer: ElementPrinter, contraction: Contraction, which: str) -> Factor:
    """The "left" or "right" factor."""
    is_left = which == "left"
    operand = contraction.left if is_left else contraction.right
    side = "row" if is_left else "column"
    turned = printer.lies_along(operand, side) and not printer.lies_along(operand, "depth")
    along = side if turned else "depth"
    width = min(_PIECE, printer.width(operand, along))
    dtype = operand.access.dtype if operand.access is not None else None
    copied = dtype is contraction.precision and width == _PIECE
    print_operand = printer.left if is_left else printer.right
    printed = print_operand(along=along, width=width)
    held = f"held[piece{' + k' if width > 1 else ''}] = kw::to<T>({printed.value});"
    decode, offset = _place(printer, contraction, operand, side) if copied else ((), "")
    return Factor(
        name=which,
        side=side,
        extent="M" if is_left else "N",
        along_depth="true" if along == "depth" else "false",
        copied=copied,
        decode=decode,
        buffer=f"g_{operand.access.buffer}" if operand.access is not None else "",
        offset=offset,
        lines=printed.lines(held),
        width=width,
    )


def _place(
    printer: ElementPrinter, contraction: Contraction, operand: Operand, side: str
) -> tuple[tuple[str, ...], str]:
    """Lines that find an element's axes, and where it lies in its buffer."""
    assert operand.access is not None
    axes: dict[str, tuple[Axis, ...]] = {
        "batch": contraction.batch,
        side: contraction.rows if side == "row" else contraction.columns,
        "depth": contraction.depth,
    }
    lines: list[str] = []
    for name, of in axes.items():
        lines += decoded(f"{name}_", name, tuple(axis.size for axis in of), "int")
    return tuple(lines), printer.offset(operand.access)


MMA_FAMILY = ContractionFamily((MMA_TILES,), _takes, _propose, _predicted_ms, _emit)
