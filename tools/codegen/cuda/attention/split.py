"""Attention in float32 on Hopper: one kernel, by three products of scaled 16-bit parts.

A pass splits queries, keys and values into two fp16 parts each, as images of shared memory: 64 rows
of one head are scaled by a power of two. Then, as in half types, scores stay in registers; weights
are split there, between zero and 2^12, and results of each step are added to ordinary float32
totals ("promotion"), since the tensor cores' own sums are cut off. A step is 64 or 128 keys and a
head at most 128 wide, so no sum on tensor cores is longer than 128 positions.

What two parts cannot say is found and repaired: rows that meet an infinity or NaN, scores that
numbers far below their block's largest could move by more than 2^-22, and rows or columns of values
that are all that small. They are computed from the tensors themselves, slowly and in order.

Not here: dropout, heads more than 128 wide, gradients, and any other device than sm_90a.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.algebra.attention import WRITTEN_SINGLE_ATTENTION
from kernelwright.tools.codegen.algebra.scored_attention import SCORED_SINGLE_ATTENTION
from kernelwright.tools.codegen.cuda.attention.common import (
    HEADS_TOGETHER,
    LANES,
    PANEL,
    AttentionFamily,
    panels,
    steps_of,
)
from kernelwright.tools.codegen.cuda.attention.printed import (
    INCLUDE,
    PackedTensor,
    contiguous,
    packed_tensors,
    plain_arguments,
    printed_call,
    printed_tensors,
    read_by,
    turned_back,
)
from kernelwright.tools.codegen.cuda.attention.reading import Attention
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    complete,
    literal,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.types import DType

SPLIT_ATTENTION = "split_attention"
_TITLE = "Attention in float32 in one kernel, as products of scaled 16-bit parts by warpgroups"
_ARCHITECTURE = "sm_90a"
# What aligns the first panel, barriers among it.
_ALIGNMENT = 1024 + 512
_ROWS, _KEYS, _MOST_STAGES, _WIDEST = (128, 192, 64), (128, 64), 4, 128
# Registers that a thread's scores, weights, sums and totals may take; of three groups it has fewer.
_REGISTERS, _REGISTERS_OF_THREE = 192, 128
_PRODUCTS, _PART_BYTES = 3, 4
# As for half types (`warpgroups`), with the share of the rate that products reach; beside a score's
# power stands, for each result, what adds a step's sums up. Set by all tiles that were timed on an
# H200 (attention_single.jsonl, attention_far.jsonl): the first in order was the fastest of each
# shape, and within 12 % of its time.
_MULTIPLIED, _SHARE, _ALONE = 2048, 0.9, 0.6
_POWER, _ADDED, _MASKED = 1 / 16, 0.065, 0.175
_EXPOSED, _EXPOSED_OF_THREE, _OF_STEP, _BESIDE = 0.63, 0.43, 30.0, 1900.0
# What the images may take of the device's memory.
_MOST_IMAGE_BYTES = 16 << 30
_INTEGERS = 'dtype="int32"'

STRATEGY = Strategy(
    name=SPLIT_ATTENTION,
    title=_TITLE,
    mechanism="A pass scales blocks of queries, keys and values by powers of two and splits every "
    "number into two fp16 parts, written as ready images of shared memory. Persistent blocks keep "
    "a tile of queries and fetch keys and values by bulk copies; warpgroups multiply scores by "
    "three products of parts, split the weights in registers, and promote each step's results to "
    "float32 totals. Rows that parts cannot give are computed from the tensors themselves.",
    reason="Tensor cores do three fp16 products in far less time than the library takes in "
    "float32, scores never go through memory, and promotion keeps the error at float32's own.",
    category="fusion",
    metric="tensor core utilisation",
    memory="packed parts, bulk copies",
    compute="split products by warpgroups",
    parallel="persistent tiles of queries",
    efficiency=0.85,
    launches=3,
)


@dataclass(frozen=True)
class _Tile:
    """Queries of a block, and keys of a step."""

    rows: int
    keys: int


def _stage_bytes(one: Attention, keys: int) -> int:
    return keys * (panels(one.width) + panels(one.value_width)) * PANEL * _PART_BYTES


def _query_bytes(one: Attention, rows: int) -> int:
    return rows * panels(one.width) * PANEL * _PART_BYTES


def _most_stages(case: Case, one: Attention, tile: _Tile) -> int:
    room = case.shared_bytes - _ALIGNMENT - _query_bytes(one, tile.rows)
    return min(_MOST_STAGES, room // _stage_bytes(one, tile.keys))


def _fits(one: Attention, tile: _Tile) -> bool:
    """Whether what a thread holds stays in registers."""
    return _held(one, tile) <= (_REGISTERS_OF_THREE if tile.rows >= 192 else _REGISTERS)


def _held(one: Attention, tile: _Tile) -> int:
    """Registers of a thread's scores, weights, sums and totals."""
    return tile.keys + PANEL * panels(one.value_width)


def _parts(one: Attention) -> int:
    """In how many parts results are summed: in two where one would leave too few registers."""
    wide = max(one.width, one.value_width)
    return 2 if panels(one.value_width) == 2 and (wide > 96 or one.mask is not None) else 1


def _tiles(case: Case, one: Attention) -> list[_Tile]:
    every = [_Tile(rows, keys) for rows in _ROWS for keys in _KEYS]
    return [tile for tile in every if _fits(one, tile) and _most_stages(case, one, tile) >= 1]


def _tile_ms(case: Case, one: Attention, tile: _Tile) -> float:
    """Tiles that all processors share evenly, longest first where lengths differ."""
    down = -(-one.queries // tile.rows)
    steps = sum(steps_of(one, tile.rows, tile.keys, number) for number in range(down)) * one.heads
    most = steps_of(one, tile.rows, tile.keys, down - 1)
    results = PANEL * panels(one.value_width)
    share = _SHARE * (1.0 if tile.rows > PANEL else _ALONE)
    products = _PRODUCTS * (results + 16 * -(-one.width // 16)) / (_MULTIPLIED * share)
    weights = _POWER + _ADDED * results / tile.keys
    weights += _MASKED if one.mask is not None else 0.0
    weights += one.score_operations / LANES
    exposed = _EXPOSED_OF_THREE if tile.rows >= 192 else _EXPOSED
    score = max(products, weights) + exposed * min(products, weights)
    # Of one stage copies are waited for.
    waited = 2.0 if _most_stages(case, one, tile) < 2 else 1.0
    of_step = tile.rows * tile.keys * score + _OF_STEP * waited
    waves = -(-down * one.heads // case.multiprocessors)
    even = max(steps / case.multiprocessors, most if one.is_causal else most * waves)
    rate = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    return (even * of_step + waves * _BESIDE) / rate * 1e3


def _ordered(case: Case, one: Attention) -> list[_Tile]:
    return sorted(_tiles(case, one), key=lambda tile: _tile_ms(case, one, tile))


def _image_bytes(one: Attention, tile: _Tile) -> int:
    """Of all images, each filled up to whole tiles."""
    sides = (tile.rows, tile.keys, tile.keys)
    return sum(
        4 * tensor.count * -(-tensor.length // side) * (side // PANEL) * tensor.block_words
        for tensor, side in zip(packed_tensors(one), sides, strict=True)
    )


def _tunables(case: Case, one: Attention, prefix: str) -> Tunables:
    ordered = _ordered(case, one)
    best = ordered[0]
    stages, parts = min(2, _most_stages(case, one, best)), _parts(one)
    tunables = Tunables(prefix)
    tunables.add("ROWS", [best.rows, *(tile.rows for tile in ordered)])
    tunables.add("KEYS", [best.keys, *(tile.keys for tile in ordered)])
    tunables.add("STAGES", (stages, 1, 2, 3, 4)).add("TURNS", (1, 0))
    tunables.add("SUMS_FIRST", (parts - 1, 2 - parts)).add("TOGETHER", HEADS_TOGETHER)
    tunables.add("PARTS", (parts, 3 - parts) if panels(one.value_width) == 2 else (1,))
    tunables.require("{PARTS} <= 1 + {SUMS_FIRST}")
    for rows in dict.fromkeys(tile.rows for tile in ordered):
        most = max(tile.keys for tile in ordered if tile.rows == rows)
        tunables.require(f"{{ROWS}} != {rows} or {{KEYS}} <= {most}")
    return tunables.require(f"{_shared(one)} <= {case.shared_bytes}")


def _shared(one: Attention) -> str:
    stages = f"{{STAGES}} * {{KEYS}} * {_stage_bytes(one, 1)}"
    return f"{{ROWS}} * {_query_bytes(one, 1)} + {stages} + {_ALIGNMENT}"


def _blocks(tensor: PackedTensor) -> str:
    """Blocks of 64 rows of all images of a tensor."""
    side = f"{{{tensor.side}}}"
    return f"{tensor.count} * ceil_div({tensor.length}, {side}) * ({side} // {PANEL})"


def _emitted(case: Case, one: Attention, prefix: str) -> Emitted:
    tunables, packed = _tunables(case, one, prefix), packed_tensors(one)
    source = render(
        "attention_split",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        call=printed_call(one),
        scale=literal(one.scale, DType.FLOAT32),
        slope=literal(one.scores.slope() if one.scores is not None else 1.0, DType.FLOAT32),
        query=packed[0],
        key=packed[1],
        value=packed[2],
        tensors=printed_tensors(one),
        batch_lines=decoded("batch_", "head", one.axes, "int"),
    )
    inputs, lines = contiguous(one, prefix)
    arguments = [*plain_arguments(one, read_by(one), inputs), *_packed_arguments(packed, prefix)]
    text, launches = complete(source, arguments, _launches(case, one, tunables, prefix))
    made = [tunables.named(line) for line in _allocations(one, packed, prefix)]
    return Emitted(source=INCLUDE + text, plan=(*lines, *made, *launches, *turned_back(one)))


def _packed_arguments(packed: tuple[PackedTensor, ...], prefix: str) -> list[Argument]:
    """Images, what is said of their blocks, and which rows are in doubt."""
    found = [Argument("doubts", "int* doubts", f"{prefix}_doubts")]
    for tensor in packed:
        for what, kind in (("image", "unsigned int"), ("blocks", "int")):
            name = f"{tensor.name}_{what}"
            found.append(Argument(name, f"{kind}* {name}", f"{prefix}_{name}"))
    return found


def _allocations(one: Attention, packed: tuple[PackedTensor, ...], prefix: str) -> list[str]:
    lines = [f"{prefix}_doubts = empty(({_strips(one)} * 4,), {_INTEGERS})"]
    for tensor in packed:
        name, blocks = f"{prefix}_{tensor.name}", _blocks(tensor)
        lines += [
            f"{name}_image = empty(({blocks} * {tensor.block_words},), {_INTEGERS})",
            f"{name}_blocks = empty(({blocks} * 2,), {_INTEGERS})",
        ]
    return lines


def _strips(one: Attention) -> int:
    """64 queries of a head each."""
    return one.heads * -(-one.queries // PANEL)


def _launches(case: Case, one: Attention, tunables: Tunables, prefix: str) -> list[Launch]:
    """The pass that packs, as many blocks as there are multiprocessors, and what is in doubt."""
    tiles = f"{one.heads} * ceil_div({one.queries}, {{ROWS}})"
    blocks = " + ".join(_blocks(tensor) for tensor in packed_tensors(one))
    return [
        Launch(kernel=f"{prefix}_pack", grid=tunables.named(blocks), block="256"),
        Launch(
            kernel=f"{prefix}_attention",
            grid=tunables.named(f"min({case.multiprocessors}, {tiles})"),
            block=tunables.named("{ROWS} * 2 + 128 if {ROWS} > 64 else 160"),
            shared=tunables.named(_shared(one)),
        ),
        Launch(kernel=f"{prefix}_repair", grid=str(_strips(one)), block="128"),
    ]


class SplitAttention(AttentionFamily):
    """Float32 attention by products of warpgroups."""

    strategy = STRATEGY
    names = (SPLIT_ATTENTION,)
    types = (DType.FLOAT32,)
    kind = "of float32"
    graph_rewrites = (WRITTEN_SINGLE_ATTENTION, SCORED_SINGLE_ATTENTION)

    def fit_on(self, hardware: Hardware, /) -> Fit:
        """Hopper alone."""
        return Fit.BEST if hardware.architecture == _ARCHITECTURE else Fit.NO

    def refuses(self, one: Attention, /) -> str:
        """Wide heads, and images beyond the device's memory."""
        wide = max(one.width, one.value_width)
        if wide > _WIDEST:
            return f"heads are {wide} wide, and both parts of more than {_WIDEST} fill registers"
        largest = _image_bytes(one, _Tile(max(_ROWS), max(_KEYS)))
        return "its parts take too much memory" * (largest > _MOST_IMAGE_BYTES)

    def tile_ms(self, case: Case, one: Attention, /) -> float:
        """Tiles that all processors share evenly, and the pass before."""
        best = _ordered(case, one)[0]
        packing = 2 * _image_bytes(one, best) / (case.hardware.bandwidth_gb_s * 0.85e6)
        return _tile_ms(case, one, best) + packing

    def printed(self, case: Case, one: Attention, prefix: str, /) -> Emitted:
        """Kernels and plan."""
        return _emitted(case, one, prefix)


SPLIT_ATTENTION_FAMILY = SplitAttention()
