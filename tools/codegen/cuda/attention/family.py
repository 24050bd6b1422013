"""Attention in fp16 and bf16 on Hopper: both products and the softmax between them in one kernel.

Persistent blocks take tiles of queries; one thread has the copy engine bring keys and values by
tensor maps into rings of stages, and warpgroups keep scores and results in registers. It is
proposed for the library's own call, which stays an option beside it: what the call makes, masks
and heads that share keys among it, is made the same way.

Not here: dropout, float32, gradients, the depth of few queries over very many keys shared by
several blocks, and any other device than sm_90a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.algebra.attention import WRITTEN_ATTENTION
from kernelwright.tools.codegen.cuda.attention.reading import (
    Attention,
    NotTakenError,
    Placed,
    attention_of,
)
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
    complete,
    literal,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, LibraryCall, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite, LoopRewrite
from kernelwright.tools.codegen.ir.roofline import roofline_ms
from kernelwright.tools.types import DType

WGMMA_ATTENTION = "wgmma_attention"
_TITLE = "Attention in one kernel, by products of warpgroups"
_INCLUDE = '#include "kernelwright_mma.cuh"\n'
_ARCHITECTURE = "sm_90a"
# Elements that are read at once.
_PIECE = 8
# Columns of a panel, and what aligns the first one, barriers among it.
_PANEL, _ALIGNMENT = 64, 1024 + 512
_ROWS, _KEYS, _MOST_STAGES = (128, 192, 64), (128, 64, 192), 4
# Registers that a thread's scores, weights and results may take; with three groups it has fewer.
_REGISTERS, _REGISTERS_OF_THREE = 184, 128
# Multiply-adds of a multiprocessor in a cycle and the share that products reach; cycles of a score
# for 2^x, for what stands around it and for a mask; of the shorter one, what the other does not
# hide; cycles before and after the steps of a tile. Not measured: a first guess that orders
# settings.
_MULTIPLIED, _SHARE = 2048, 0.75
_POWER, _AROUND, _MASKED, _EXPOSED = 1 / 16, 5 / 128, 4 / 128, 0.25
_BESIDE = 1500.0
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
class PrintedMask:
    """A mask as the skeleton reads it: offsets in elements, `offset` as an expression.

    `in_pairs` says whether eight neighbouring elements can be read at once, two of them a word.
    """

    buffer: str
    type: str
    offset: str
    row_step: int
    key_step: int
    is_boolean: bool
    in_pairs: bool


@dataclass(frozen=True)
class PrintedCall:
    """What the skeleton says of a call.

    `before` multiplies scores before a mask is added to them ("" where nothing does), `after` the
    distance from a row's largest one, to the power of two; places are coordinates along batches.
    """

    queries: int
    keys: int
    width: int
    values: int
    heads: int
    is_causal: bool
    mask: PrintedMask | None
    before: str
    after: str
    query_places: str
    key_places: str
    value_places: str
    result: str
    result_offset: str
    result_step: int


class WgmmaAttention:
    """Takes a library's attention in a half type."""

    names: tuple[str, ...] = (WGMMA_ATTENTION,)
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = (WRITTEN_ATTENTION,)

    def fit(self, case: Case, /) -> Fit:
        """Whether it is attention that tensor maps describe."""
        if case.hardware.architecture != _ARCHITECTURE or not isinstance(case.node, LibraryCall):
            return Fit.NO
        try:
            attention_of(case.node)
        except NotTakenError:
            return Fit.NO
        return Fit.BEST

    def strategies(self, case: Case, /) -> Sequence[Strategy]:
        """The one way."""
        return [STRATEGY]

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        """Waves of the best tile, never less than the bytes take."""
        call = _call(case)
        one, cost = attention_of(call), call.line.cost_bytes
        rate = one.flops / (_tile_ms(case, one, _ordered(case, one)[0]) * 1e9)
        return roofline_ms(cost, one.flops, strategy, case.hardware, tflops=rate)

    def emit(self, case: Case, name: str, prefix: str, /) -> Emitted:
        """Kernel and plan.

        Raises:
            ValueError: With the reason, where the call stays with the library.
        """
        call = _call(case)
        try:
            one = attention_of(call)
        except NotTakenError as why:
            raise ValueError(f"{call.name}: {why}") from why
        return _emitted(case, one, prefix)


def _call(case: Case) -> LibraryCall:
    if not isinstance(case.node, LibraryCall):
        raise ValueError(f"{case.node.name} is no call of the library")
    return case.node


@dataclass(frozen=True)
class _Tile:
    """Queries of a block, and keys of a step."""

    rows: int
    keys: int


def _panels(width: int) -> int:
    return -(-width // _PANEL)


def _fits(one: Attention, tile: _Tile) -> bool:
    """Whether what a thread holds stays in registers."""
    results = _panels(one.value_width) * _PANEL // 2
    held = results + tile.keys // 2 + tile.keys // 4
    if tile.rows < 192:
        return held <= _REGISTERS
    # A mask's pairs wait in registers too, for which two groups have room.
    return held + (tile.keys // 4 if one.mask is not None else 0) <= _REGISTERS_OF_THREE


def _stage_bytes(one: Attention, keys: int) -> int:
    return keys * (_panels(one.width) + _panels(one.value_width)) * _PANEL * 2


def _tiles(case: Case, one: Attention) -> list[_Tile]:
    every = [_Tile(rows, keys) for rows in _ROWS for keys in _KEYS]
    return [tile for tile in every if _fits(one, tile) and _most_stages(case, one, tile) >= 2]


def _most_stages(case: Case, one: Attention, tile: _Tile) -> int:
    room = case.shared_bytes - _ALIGNMENT - tile.rows * _panels(one.width) * _PANEL * 2
    return min(_MOST_STAGES, room // _stage_bytes(one, tile.keys))


def _tile_ms(case: Case, one: Attention, tile: _Tile) -> float:
    """Tiles that all processors share evenly, longest first where lengths differ."""
    down = -(-one.queries // tile.rows)
    steps = sum(_steps(one, tile, number) for number in range(down)) * one.heads
    most = _steps(one, tile, down - 1)
    widths = _PANEL * _panels(one.value_width) + 16 * -(-one.width // 16)
    share = _SHARE * (1.0 if tile.rows > _PANEL else _ALONE)
    products, weights = widths / (_MULTIPLIED * share), _POWER + _AROUND
    weights += _MASKED if one.mask is not None else 0.0
    score = max(products, weights) + _EXPOSED * min(products, weights)
    of_step = tile.rows * tile.keys * score
    waves = -(-down * one.heads // case.multiprocessors)
    even = max(steps / case.multiprocessors, most if one.is_causal else most * waves)
    rate = (case.hardware.tensor_tflops or 1.0) * 1e12 / case.multiprocessors / (2 * _MULTIPLIED)
    return (even * of_step + waves * _BESIDE) / rate * 1e3


def _steps(one: Attention, tile: _Tile, number: int) -> int:
    """Steps of the tile of queries of that number."""
    last = min(one.keys, (number + 1) * tile.rows) if one.is_causal else one.keys
    return -(-last // tile.keys)


def _ordered(case: Case, one: Attention) -> list[_Tile]:
    return sorted(_tiles(case, one), key=lambda tile: _tile_ms(case, one, tile))


def _together(case: Case, one: Attention) -> list[int]:
    """Heads whose tiles are taken together: those whose keys and values stay cached.

    Where all tiles are alike, a head is done with before the next one begins.
    """
    each = one.keys * (one.width + one.value_width) * 2
    fits = [n for n in (16, 8, 4, 2, 1) if n * each <= case.cache_bytes and n <= one.heads]
    best = (fits or [1])[0] if one.is_causal else 1
    return [best, *(n for n in (1, 4, 8, 16, 32) if n != best)]


def _tunables(case: Case, one: Attention, prefix: str) -> Tunables:
    ordered = _ordered(case, one)
    best = ordered[0]
    stages = min(2 if best.keys > 64 else 3, _most_stages(case, one, best))
    tunables = Tunables(prefix)
    tunables.add("ROWS", [best.rows, *(tile.rows for tile in ordered)])
    tunables.add("KEYS", [best.keys, *(tile.keys for tile in ordered)])
    tunables.add("STAGES", (stages, 2, 3, 4)).add("TURNS", (1, 0))
    tunables.add("PERSISTENT", (1, 0)).add("TOGETHER", _together(case, one))
    for rows in dict.fromkeys(tile.rows for tile in ordered):
        most = max(tile.keys for tile in ordered if tile.rows == rows)
        tunables.require(f"{{ROWS}} != {rows} or {{KEYS}} <= {most}")
    return tunables.require(f"{_shared(one)} <= {case.shared_bytes}")


def _shared(one: Attention) -> str:
    queries = _panels(one.width) * _PANEL * 2
    return f"{{ROWS}} * {queries} + {{STAGES}} * {{KEYS}} * {_stage_bytes(one, 1)} + {_ALIGNMENT}"


def _emitted(case: Case, one: Attention, prefix: str) -> Emitted:
    tunables = _tunables(case, one, prefix)
    source = render(
        "attention",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        type=c_type(one.dtype),
        call=_printed(one),
        batch_lines=decoded("batch_", "head", one.axes, "int"),
    )
    inputs = {place.buffer: f"{prefix}_{place.buffer}" for place in _read(one)}
    text, launches = complete(
        source, _arguments(one, tunables, inputs), [_launch(case, one, tunables, prefix)]
    )
    # What a library made may lie in any order.
    lines = [f"{name} = {buffer}.contiguous()" for buffer, name in inputs.items()]
    return Emitted(source=_INCLUDE + text, plan=(*lines, *launches, *_turned(one)))


def _read(one: Attention) -> list[Placed]:
    return [one.query, one.key, one.value, *([one.mask] if one.mask is not None else [])]


def _rows_last(one: Attention) -> bool:
    """Whether a query's heads lie beside each other, as a projection leaves them.

    The library leaves its result as the query lies, and so does this, since what follows is mostly
    a projection again: then there is nothing to turn.
    """
    shape, steps = one.result.shape, one.query.axis_steps
    inner = steps[-1] if len(shape) > 3 and one.axes and shape[-3] > 1 else 0
    return 0 < inner < one.query.row_step


def _printed(one: Attention) -> PrintedCall:
    is_added = one.mask is not None and one.mask.dtype is not DType.BOOL
    is_scaled = is_added or one.scale <= 0.0
    after = math.log2(math.e) * (1.0 if is_scaled else one.scale)
    heads = one.result.shape[-3] if _rows_last(one) else 1
    offset = f"head * {one.queries * one.value_width}ll"
    if heads > 1:
        offset = f"head / {heads} * {heads * one.queries * one.value_width}ll"
        offset += f" + head % {heads} * {one.value_width}"
    return PrintedCall(
        queries=one.queries,
        keys=one.keys,
        width=one.width,
        values=one.value_width,
        heads=one.heads,
        is_causal=one.is_causal,
        mask=_printed_mask(one.mask, one.keys),
        before=literal(one.scale, DType.FLOAT32) if is_scaled else "",
        after=literal(after, DType.FLOAT32),
        query_places=_map_places(one.query),
        key_places=_map_places(one.key),
        value_places=_map_places(one.value),
        result=one.result.name,
        result_offset=offset,
        result_step=heads * one.value_width,
    )


def _printed_mask(mask: Placed | None, keys: int) -> PrintedMask | None:
    if mask is None:
        return None
    apart = (mask.offset, mask.row_step, keys, *mask.axis_steps)
    steps = [f"batch_{at} * {step}ll" for at, step in enumerate(mask.axis_steps) if step]
    return PrintedMask(
        buffer=mask.buffer,
        type=c_type(mask.dtype),
        offset=" + ".join([str(mask.offset), *steps]),
        row_step=mask.row_step,
        key_step=mask.column_step,
        is_boolean=mask.dtype is DType.BOOL,
        in_pairs=mask.dtype is not DType.FLOAT32
        and mask.column_step == 1
        and all(step % _PIECE == 0 for step in apart),
    )


def _moving(place: Placed) -> list[int]:
    """The axes along which a tensor moves, which its map has."""
    return [at for at, step in enumerate(place.axis_steps) if step]


def _map_places(place: Placed) -> str:
    return "".join(f", batch_{at}" for at in reversed(_moving(place)))


def _arguments(one: Attention, tunables: Tunables, inputs: dict[str, str]) -> list[Argument]:
    kind = c_type(one.dtype)
    maps = (
        ("query_map", one.query, one.queries, one.width, "{ROWS}"),
        ("key_map", one.key, one.keys, one.width, "{KEYS}"),
        ("value_map", one.value, one.keys, one.value_width, "{KEYS}"),
    )
    found = [
        _map(one, name, place, (rows, columns), tunables.named(box), inputs[place.buffer])
        for name, place, rows, columns, box in maps
    ]
    if one.mask is not None:
        name = f"g_{one.mask.buffer}"
        declaration = f"const {c_type(one.mask.dtype)}* __restrict__ {name}"
        found.append(Argument(name, declaration, inputs[one.mask.buffer]))
    result = f"g_{one.result.name}"
    return [*found, Argument(result, f"{kind}* __restrict__ {result}", one.result.name)]


def _map(
    one: Attention, name: str, place: Placed, sides: tuple[int, int], box: str, passed: str
) -> Argument:
    """A tensor map as a parameter; a box is `box` rows of a panel of one head."""
    axes = _moving(place)
    sizes = [*(one.axes[at] for at in axes), *sides]
    # Of one row the step is nobody's, but a map wants one.
    row_step = place.row_step or _panels(sides[1]) * _PANEL
    steps = [*(place.axis_steps[at] for at in axes), row_step, 1]
    text = f"tensor_map({passed}, shape=({_listed(sizes)}), strides=({_listed(steps)}), "
    text += f"offset={place.offset}, box=({'1, ' * len(axes)}{box}, {_PANEL}))"
    return Argument(name, f"const __grid_constant__ kw::TensorMap {name}", text)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


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


def _turned(one: Attention) -> tuple[str, ...]:
    """The plan's line that reads what was stored heads last as the operator returns it."""
    if not _rows_last(one):
        return ()
    name, (*batch, heads, rows, width) = one.result.name, one.result.shape
    first = _listed([*batch, rows, heads, width])
    order = [*range(len(batch)), len(batch) + 1, len(batch), len(batch) + 2]
    return (f"{name} = {name}.reshape(({first})).permute(({_listed(order)}))",)


ATTENTION_FAMILY = WgmmaAttention()
