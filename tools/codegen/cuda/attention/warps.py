"""Attention in fp16 and bf16 by products of warps, on devices from Ampere on.

A block keeps a tile of queries in shared memory, a warp 16 of them; a ring of asynchronous copies
brings keys and values. What is said of calls in `warpgroups` holds here too, for heads up to 128
wide: the results of wider ones leave no registers. On Hopper it is printed when asked alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.attention.common import (
    HEADS_TOGETHER,
    PANEL,
    AttentionFamily,
    panels,
    stage_bytes,
    stages_beside,
    steps_of,
)
from kernelwright.tools.codegen.cuda.attention.printed import (
    INCLUDE,
    contiguous,
    plain_arguments,
    printed_call,
    printed_tensors,
    read_by,
    turned_back,
)
from kernelwright.tools.codegen.cuda.attention.reading import Attention
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit

MMA_ATTENTION = "mma_attention"
_TITLE = "Attention in one kernel, by warp-level tensor core products"
_FIRST_CAPABILITY, _HOPPER = 80, "sm_90a"
_WIDEST, _ALIGNMENT = 128, 1024
# Warps of a block and keys of a step, the likeliest first.
_WARPS, _KEYS = (4, 8), (64, 128, 32)
# The share of the tensor rate that is expected, and microseconds before and after a tile's steps.
# Not measured.
_SHARE, _BESIDE_US = 0.5, 1.5

STRATEGY = Strategy(
    name=MMA_ATTENTION,
    title=_TITLE,
    mechanism="Each block keeps a tile of queries; a ring of asynchronous copies brings keys and "
    "values while warps multiply. Scores become weights in registers, with a running maximum, and "
    "are the left factor of the product with the values as they lie.",
    reason="Scores are the largest tensor of attention and nobody needs them: they never go "
    "through memory.",
    category="fusion",
    metric="tensor core utilisation",
    memory="ring of copies",
    compute="tensor cores by warps",
    parallel="tile of queries per block",
    efficiency=0.85,
)


@dataclass(frozen=True)
class _Tile:
    """Warps of a block, each with 16 queries, and keys of a step."""

    warps: int
    keys: int

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return 16 * self.warps


def _tiles(case: Case, one: Attention) -> list[_Tile]:
    every = [_Tile(warps, keys) for warps in _WARPS for keys in _KEYS]
    return [tile for tile in every if _most_stages(case, one, tile) >= 2]


def _most_stages(case: Case, one: Attention, tile: _Tile) -> int:
    room = case.shared_bytes - _ALIGNMENT
    return min(4, stages_beside(one, tile.rows, tile.keys, room))


def _tile_ms(case: Case, one: Attention, tile: _Tile) -> float:
    """Blocks that fill the device in waves; more than one a multiprocessor hide each other."""
    down = -(-one.queries // tile.rows)
    steps = sum(steps_of(one, tile.rows, tile.keys, at) for at in range(down)) * one.heads
    rate = (case.hardware.tensor_tflops or 1.0) * 1e9 * _SHARE
    padded = steps * tile.rows * tile.keys * 2.0 * PANEL
    flops = padded * (panels(one.width) + panels(one.value_width))
    busy = min(1.0, down * one.heads / case.multiprocessors)
    waves = -(-down * one.heads // case.multiprocessors)
    # What is done to a score goes beside products of other warps, half of it hidden.
    changes = steps * tile.rows * tile.keys * one.score_operations / 2
    changing = changes / (case.hardware.fp32_tflops / 2 * 1e9)
    return (flops / rate + changing) / busy + waves * _BESIDE_US / 2e3


def _ordered(case: Case, one: Attention) -> list[_Tile]:
    return sorted(_tiles(case, one), key=lambda tile: _tile_ms(case, one, tile))


def _tunables(case: Case, one: Attention, prefix: str) -> Tunables:
    ordered = _ordered(case, one)
    tunables = Tunables(prefix)
    tunables.add("WARPS", [tile.warps for tile in ordered])
    tunables.add("KEYS", [tile.keys for tile in ordered])
    tunables.add("STAGES", (2, 3)).add("TOGETHER", HEADS_TOGETHER)
    return tunables.require(f"{_shared(one)} <= {case.shared_bytes}")


def _shared(one: Attention) -> str:
    queries = 16 * panels(one.width) * PANEL * 2
    return f"{{WARPS}} * {queries} + {{STAGES}} * {{KEYS}} * {stage_bytes(one, 1)} + {_ALIGNMENT}"


class MmaAttention(AttentionFamily):
    """Attention by products of warps."""

    strategy = STRATEGY
    names = (MMA_ATTENTION,)

    def fit_on(self, hardware: Hardware, /) -> Fit:
        """Ampere and later."""
        digits = (hardware.architecture or "").removeprefix("sm_").rstrip("af")
        if not digits.isdigit() or int(digits) < _FIRST_CAPABILITY:
            return Fit.NO
        return Fit.ON_REQUEST if hardware.architecture == _HOPPER else Fit.BEST

    def refuses(self, one: Attention, /) -> str:
        """Wide heads."""
        wide = max(one.width, one.value_width)
        return f"heads are {wide} wide, and more than {_WIDEST} fill registers" * (wide > _WIDEST)

    def tile_ms(self, case: Case, one: Attention, /) -> float:
        """Waves of blocks at the rate that warps reach."""
        return _tile_ms(case, one, _ordered(case, one)[0])

    def printed(self, case: Case, one: Attention, prefix: str, /) -> Emitted:
        """Kernel and plan."""
        tunables = _tunables(case, one, prefix)
        source = render(
            "attention_warps",
            title=_TITLE,
            prefix=tunables.prefix,
            name=prefix,
            tunables=tunables.text(),
            type=c_type(one.dtype),
            call=printed_call(one),
            tensors=printed_tensors(one),
            batch_lines=decoded("batch_", "head", one.axes, "int"),
        )
        inputs, lines = contiguous(one, prefix)
        arguments = plain_arguments(one, read_by(one), inputs)
        tiles = f"{one.heads} * ceil_div({one.queries}, {{WARPS}} * 16)"
        launch = Launch(
            kernel=f"{prefix}_warps",
            grid=tunables.named(tiles),
            block=tunables.named("{WARPS} * 32"),
            shared=tunables.named(_shared(one)),
        )
        text, launches = complete(source, arguments, [launch])
        return Emitted(source=INCLUDE + text, plan=(*lines, *launches, *turned_back(one)))


MMA_ATTENTION_FAMILY = MmaAttention()
