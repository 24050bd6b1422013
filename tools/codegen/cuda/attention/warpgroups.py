"""Attention in fp16 and bf16 on Hopper: both products and the softmax between them in one kernel.

Persistent blocks take tiles of queries; one thread has the copy engine bring keys and values by
tensor maps into rings of stages, and warpgroups keep scores and results in registers. It is
proposed for the library's own call, which stays an option beside it: what the call makes, masks
and heads that share keys among it, is made the same way.

Not here: dropout, float32, gradients, the depth of few queries over very many keys shared by
several blocks, and any other device than sm_90a.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.attention.common import (
    HEADS_TOGETHER,
    LANES,
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
    is_tiled,
    listed,
    moving_axes,
    plain_arguments,
    printed_call,
    turned_back,
)
from kernelwright.tools.codegen.cuda.attention.reading import Attention, Placed
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit

WGMMA_ATTENTION = "wgmma_attention"
_TITLE = "Attention in one kernel, by products of warpgroups"
_ARCHITECTURE = "sm_90a"
# What aligns the first panel, barriers among it.
_ALIGNMENT = 1024 + 512
_ROWS, _KEYS, _MOST_STAGES = (128, 192, 64), (128, 64, 192), 4
# Registers that a thread's scores, weights and results may take; with three groups it has fewer.
_REGISTERS, _REGISTERS_OF_THREE = 184, 128
# Multiply-adds of a multiprocessor in a cycle; cycles of a score for 2^x, for what stands around
# it, for a mask and for one that comes by a map; of the shorter one, what the other does not hide,
# with two groups and with three; cycles of a step besides, and before and after a tile's steps. Set
# by all tiles that were timed on an H200 (attention.jsonl, attention_far.jsonl): the best tiles of
# a shape are within 12 % of their times, and first in order but with a bias (6 % behind the best).
_MULTIPLIED = 2048
_POWER, _AROUND, _MASKED, _MASKED_BY_MAP = 1 / 16, 0.018, 0.065, 0.043
_EXPOSED, _EXPOSED_OF_THREE, _OF_STEP, _BESIDE = 0.22, 0.11, 550.0, 4550.0
# A warpgroup alone has nobody's products beside its weights.
_ALONE = 0.8

STRATEGY = Strategy(
    name=WGMMA_ATTENTION,
    title=_TITLE,
    mechanism="Each block keeps a tile of queries; keys and values come through rings of swizzled "
    "stages by tensor maps. Warpgroups multiply scores, make weights of them in registers with a "
    "running maximum, and multiply these with the values as they lie; products of the next step "
    "run meanwhile, and groups take turns.",
    reason="Scores are the largest tensor of attention and nobody needs them: they never go "
    "through memory, and tensor cores multiply while other warps compute powers.",
    category="fusion",
    metric="tensor core utilisation",
    memory="ring of copies by tensor maps",
    compute="tensor cores by warpgroups",
    parallel="persistent tiles of queries",
    efficiency=0.9,
)


@dataclass(frozen=True)
class _Tile:
    """Queries of a block, and keys of a step."""

    rows: int
    keys: int


def _fits(one: Attention, tile: _Tile) -> bool:
    """Whether what a thread holds stays in registers."""
    results = panels(one.value_width) * PANEL // 2
    held = results + tile.keys // 2 + tile.keys // 4
    if tile.rows < 192:
        return held <= _REGISTERS
    # A mask's pairs wait in registers too, for which two groups have room.
    waits = one.mask is not None and not is_tiled(one.mask)
    return held + (tile.keys // 4 if waits else 0) <= _REGISTERS_OF_THREE


def _tiles(case: Case, one: Attention) -> list[_Tile]:
    every = [_Tile(rows, keys) for rows in _ROWS for keys in _KEYS]
    return [tile for tile in every if _fits(one, tile) and _most_stages(case, one, tile) >= 2]


def _most_stages(case: Case, one: Attention, tile: _Tile) -> int:
    room = case.shared_bytes - _ALIGNMENT - _bias_bytes(one) * tile.rows * tile.keys
    return min(_MOST_STAGES, stages_beside(one, tile.rows, tile.keys, room))


def _bias_bytes(one: Attention) -> int:
    """Of a score, in both stages of biases that a map brings."""
    return 4 if one.mask is not None and is_tiled(one.mask) else 0


def _tile_ms(case: Case, one: Attention, tile: _Tile) -> float:
    """Tiles that all processors share evenly, longest first where lengths differ."""
    down = -(-one.queries // tile.rows)
    steps = sum(steps_of(one, tile.rows, tile.keys, number) for number in range(down)) * one.heads
    most = steps_of(one, tile.rows, tile.keys, down - 1)
    widths = PANEL * panels(one.value_width) + 16 * -(-one.width // 16)
    share = 1.0 if tile.rows > PANEL else _ALONE
    products, weights = widths / (_MULTIPLIED * share), _POWER + _AROUND
    if one.mask is not None:
        weights += _MASKED_BY_MAP if is_tiled(one.mask) else _MASKED
    weights += one.score_operations / LANES
    exposed = _EXPOSED_OF_THREE if tile.rows >= 192 else _EXPOSED
    score = max(products, weights) + exposed * min(products, weights)
    of_step = tile.rows * tile.keys * score + _OF_STEP
    waves = -(-down * one.heads // case.multiprocessors)
    even = max(steps / case.multiprocessors, most if one.is_causal else most * waves)
    rate = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    return (even * of_step + waves * _BESIDE) / rate * 1e3


def _ordered(case: Case, one: Attention) -> list[_Tile]:
    return sorted(_tiles(case, one), key=lambda tile: _tile_ms(case, one, tile))


def _tunables(case: Case, one: Attention, prefix: str) -> Tunables:
    ordered = _ordered(case, one)
    best = ordered[0]
    stages = min(2 if best.keys > 64 else 3, _most_stages(case, one, best))
    tunables = Tunables(prefix)
    tunables.add("ROWS", [best.rows, *(tile.rows for tile in ordered)])
    tunables.add("KEYS", [best.keys, *(tile.keys for tile in ordered)])
    tunables.add("STAGES", (stages, 2, 3, 4)).add("TURNS", (1, 0))
    tunables.add("PERSISTENT", (1, 0)).add("TOGETHER", HEADS_TOGETHER)
    for rows in dict.fromkeys(tile.rows for tile in ordered):
        most = max(tile.keys for tile in ordered if tile.rows == rows)
        tunables.require(f"{{ROWS}} != {rows} or {{KEYS}} <= {most}")
    return tunables.require(f"{_shared(one)} <= {case.shared_bytes}")


def _shared(one: Attention) -> str:
    queries = panels(one.width) * PANEL * 2
    biases = f" + {{ROWS}} * {{KEYS}} * {_bias_bytes(one)}" if _bias_bytes(one) else ""
    stages = f"{{STAGES}} * {{KEYS}} * {stage_bytes(one, 1)}"
    return f"{{ROWS}} * {queries} + {stages}{biases} + {_ALIGNMENT}"


def _emitted(case: Case, one: Attention, prefix: str) -> Emitted:
    tunables = _tunables(case, one, prefix)
    source = render(
        "attention",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        type=c_type(one.dtype),
        call=printed_call(one),
        in_tiles=one.mask is not None and is_tiled(one.mask),
        batch_lines=decoded("batch_", "head", one.axes, "int"),
    )
    inputs, lines = contiguous(one, prefix)
    text, launches = complete(
        source, _arguments(one, tunables, inputs), [_launch(case, one, tunables, prefix)]
    )
    return Emitted(source=INCLUDE + text, plan=(*lines, *launches, *turned_back(one)))


def _arguments(one: Attention, tunables: Tunables, inputs: dict[str, str]) -> list[Argument]:
    maps = (
        ("query_map", one.query, one.queries, one.width, "{ROWS}"),
        ("key_map", one.key, one.keys, one.width, "{KEYS}"),
        ("value_map", one.value, one.keys, one.value_width, "{KEYS}"),
    )
    found = [
        _map(one, name, place, (rows, columns), tunables.named(box), inputs[place.buffer])
        for name, place, rows, columns, box in maps
    ]
    masks = [one.mask] if one.mask is not None else []
    if one.mask is not None and is_tiled(one.mask):
        sides, box = (one.queries, one.keys), tunables.named("{ROWS}")
        passed = inputs[one.mask.buffer]
        found.append(_map(one, "mask_map", one.mask, sides, box, passed))
        masks = []
    return [*found, *plain_arguments(one, masks, inputs)]


def _map(
    one: Attention, name: str, place: Placed, sides: tuple[int, int], box: str, passed: str
) -> Argument:
    """A tensor map as a parameter; a box is `box` rows of a panel of one head."""
    axes = moving_axes(place)
    sizes = [*(one.axes[at] for at in axes), *sides]
    # Of one row the step is nobody's, but a map wants one.
    row_step = place.row_step or panels(sides[1]) * PANEL
    steps = [*(place.axis_steps[at] for at in axes), row_step, 1]
    text = f"tensor_map({passed}, shape=({listed(sizes)}), strides=({listed(steps)}), "
    text += f"offset={place.offset}, box=({'1, ' * len(axes)}{box}, {PANEL}))"
    return Argument(name, f"const __grid_constant__ kw::TensorMap {name}", text)


def _launch(case: Case, one: Attention, tunables: Tunables, prefix: str) -> Launch:
    """As many blocks as there are multiprocessors, or one for each tile."""
    tiles = f"{one.heads} * ceil_div({one.queries}, {{ROWS}})"
    most = f"{case.multiprocessors} if {{PERSISTENT}} else {tiles}"
    return Launch(
        kernel=f"{prefix}_attention",
        grid=tunables.named(f"min({most}, {tiles})"),
        block=tunables.named("{ROWS} * 2 + 128 if {ROWS} > 64 else 160"),
        shared=tunables.named(_shared(one)),
    )


class WgmmaAttention(AttentionFamily):
    """Attention by products of warpgroups."""

    strategy = STRATEGY
    names = (WGMMA_ATTENTION,)

    def fit_on(self, hardware: Hardware, /) -> Fit:
        """Hopper alone."""
        return Fit.BEST if hardware.architecture == _ARCHITECTURE else Fit.NO

    def tile_ms(self, case: Case, one: Attention, /) -> float:
        """Tiles that all processors share evenly."""
        return _tile_ms(case, one, _ordered(case, one)[0])

    def printed(self, case: Case, one: Attention, prefix: str, /) -> Emitted:
        """Kernel and plan."""
        return _emitted(case, one, prefix)


WGMMA_ATTENTION_FAMILY = WgmmaAttention()
