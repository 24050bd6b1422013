"""What kernels of attention are told of a call, and how a plan passes its tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.attention.reading import (
    HALVES,
    MOST_AXES,
    Attention,
    Placed,
)
from kernelwright.tools.codegen.cuda.attention.scoring import PrintedScores, printed_scores
from kernelwright.tools.codegen.cuda.printing.expressions import Argument, c_type, literal
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Access
from kernelwright.tools.types import DType

INCLUDE = '#include "kernelwright_mma.cuh"\n'
# Elements that are read at once.
_PIECE = 8


@dataclass(frozen=True)
class PrintedMask:
    """A mask as the skeleton reads it: offsets in elements, `offset` as an expression.

    `in_pairs` says whether eight neighbouring elements can be read at once, two of them a word,
    `in_twos` whether two can; `in_tiles` says whether a tensor map brings it, and `places` where.
    """

    buffer: str
    type: str
    offset: str
    row_step: int
    key_step: int
    is_boolean: bool
    in_pairs: bool
    in_twos: bool
    in_tiles: bool
    places: str


@dataclass(frozen=True)
class PrintedTensor:
    """Queries, keys or values as threads read them, from `offset`, an expression, on."""

    name: str
    buffer: str
    offset: str
    row_step: int
    column_step: int


@dataclass(frozen=True)
class PackedTensor:
    """Queries, keys or values as a pass packs them, blocks of 64 rows of one head.

    `side` is the tunable that says how many rows are multiplied at once; heads that share a tensor
    share its `count` images, and `index` is the image of a head. `places` are lines that find a
    tensor's own batches and heads from the number of an image, `item`.
    """

    name: str
    buffer: str
    side: str
    length: int
    width: int
    count: int
    index: str
    places: tuple[str, ...]
    offset: str
    row_step: int
    column_step: int
    is_dense: bool

    @property
    def block_words(self) -> int:
        """Words of 4 bytes of a block's image."""
        return -(-self.width // 64) * 4096


@dataclass(frozen=True)
class PrintedCall:
    """What the skeleton says of a call.

    `before` multiplies scores before a mask is added to them ("" where nothing does), `after` the
    distance from a row's largest one, to the power of two; places are coordinates along batches.
    `is_added` says whether there is such a mask. `scores` is a function of scores, and `nothing`
    what a score is that does not count; keys further than `window` before a query do not.
    """

    queries: int
    keys: int
    width: int
    values: int
    heads: int
    is_causal: bool
    mask: PrintedMask | None
    is_added: bool
    before: str
    after: str
    query_places: str
    key_places: str
    value_places: str
    result: str
    result_offset: str
    result_step: int
    scores: PrintedScores | None
    window: int | None
    is_softmax: bool
    nothing: str


def read_by(one: Attention) -> list[Placed]:
    """The tensors that a call reads, those of a score function aside."""
    return [one.query, one.key, one.value, *([one.mask] if one.mask is not None else [])]


def _beside(one: Attention) -> tuple[Access, ...]:
    """What a score function reads."""
    return one.scores.reads if one.scores is not None else ()


def _rows_last(one: Attention) -> bool:
    """Whether a query's heads lie beside each other, as a projection leaves them.

    The library leaves its result as the query lies, and so does this, since what follows is mostly
    a projection again: then there is nothing to turn.
    """
    shape, steps = one.result.shape, one.query.axis_steps
    inner = steps[-1] if len(shape) > 3 and one.axes and shape[-3] > 1 else 0
    return 0 < inner < one.query.row_step


def printed_call(one: Attention) -> PrintedCall:
    """What a skeleton says of a call."""
    is_added = one.mask is not None and one.mask.dtype is not DType.BOOL
    is_scaled = is_added or one.scale <= 0.0 or one.scores is not None
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
        is_added=is_added,
        before=literal(one.scale, DType.FLOAT32) if is_scaled else "",
        after=literal(after, DType.FLOAT32),
        query_places=_map_places(one.query),
        key_places=_map_places(one.key),
        value_places=_map_places(one.value),
        result=one.result.name,
        result_offset=offset,
        result_step=heads * one.value_width,
        scores=printed_scores(one.scores, one.dtype) if one.scores is not None else None,
        window=one.window,
        is_softmax=one.is_softmax,
        nothing="kw::least<float>()" if one.is_softmax else "0.0f",
    )


def is_tiled(mask: Placed) -> bool:
    """Whether a tensor map describes a mask of 16-bit numbers that every row has of its own."""
    apart = (mask.offset, mask.row_step, *mask.axis_steps)
    return (
        mask.dtype in HALVES
        and mask.column_step == 1
        and mask.row_step > 0
        and all(step >= 0 and step % _PIECE == 0 for step in apart)
        and len(moving_axes(mask)) <= MOST_AXES
    )


def _printed_mask(mask: Placed | None, keys: int) -> PrintedMask | None:
    if mask is None:
        return None
    apart = (mask.offset, mask.row_step, keys, *mask.axis_steps)
    is_dense = mask.column_step == 1
    return PrintedMask(
        buffer=mask.buffer,
        type=c_type(mask.dtype),
        offset=_offset(mask),
        row_step=mask.row_step,
        key_step=mask.column_step,
        is_boolean=mask.dtype is DType.BOOL,
        in_pairs=mask.dtype is not DType.FLOAT32
        and is_dense
        and all(step % _PIECE == 0 for step in apart),
        in_twos=is_dense and all(step % 2 == 0 for step in apart),
        in_tiles=is_tiled(mask),
        places=_map_places(mask),
    )


def printed_tensors(one: Attention) -> list[PrintedTensor]:
    """Queries, keys and values."""
    places = {"query_at": one.query, "key_at": one.key, "value_at": one.value}
    return [
        PrintedTensor(name, place.buffer, _offset(place), place.row_step, place.column_step)
        for name, place in places.items()
    ]


def packed_tensors(one: Attention) -> tuple[PackedTensor, PackedTensor, PackedTensor]:
    """Queries, keys and values."""
    return (
        _packed("query", "ROWS", one, one.query, (one.queries, one.width)),
        _packed("key", "KEYS", one, one.key, (one.keys, one.width)),
        _packed("value", "KEYS", one, one.value, (one.keys, one.value_width)),
    )


def _packed(
    name: str, side: str, one: Attention, place: Placed, sides: tuple[int, int]
) -> PackedTensor:
    moving = moving_axes(place)
    sizes = [one.axes[at] for at in moving]
    within = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    steps = [place.axis_steps[at] for at in moving]
    aligned = (place.offset, place.row_step, *steps)
    offset = [str(place.offset), *(f"place_{at} * {step}ll" for at, step in enumerate(steps))]
    index = [f"batch_{at} * {step}" for at, step in zip(moving, within, strict=True)]
    return PackedTensor(
        name=name,
        buffer=place.buffer,
        side=side,
        length=sides[0],
        width=sides[1],
        count=math.prod(sizes),
        index=" + ".join(index) or "0",
        places=tuple(decoded("place_", "item", sizes, "int")),
        offset=" + ".join(offset),
        row_step=place.row_step,
        column_step=place.column_step,
        is_dense=place.column_step == 1 and all(step % 4 == 0 for step in aligned),
    )


def _offset(place: Placed) -> str:
    steps = [f"batch_{at} * {step}ll" for at, step in enumerate(place.axis_steps) if step]
    return " + ".join([str(place.offset), *steps])


def moving_axes(place: Placed) -> list[int]:
    """The axes along which a tensor moves, which its map has."""
    return [at for at, step in enumerate(place.axis_steps) if step]


def _map_places(place: Placed) -> str:
    return "".join(f", batch_{at}" for at in reversed(moving_axes(place)))


def listed(numbers: Sequence[int]) -> str:
    """Numbers as a plan writes them between parentheses."""
    return ", ".join(map(str, numbers))


def turned_back(one: Attention) -> tuple[str, ...]:
    """The plan's line that reads what was stored heads last as the operator returns it."""
    if not _rows_last(one):
        return ()
    name, (*batch, heads, rows, width) = one.result.name, one.result.shape
    first = listed([*batch, rows, heads, width])
    order = [*range(len(batch)), len(batch) + 1, len(batch), len(batch) + 2]
    return (f"{name} = {name}.reshape(({first})).permute(({listed(order)}))",)


def contiguous(one: Attention, prefix: str) -> tuple[dict[str, str], list[str]]:
    """What the kernel is passed for each buffer, and the plan's lines that make it.

    What a library made may lie in any order.
    """
    buffers = [place.buffer for place in read_by(one)]
    buffers += [access.buffer for access in _beside(one)]
    inputs = {buffer: f"{prefix}_{buffer}" for buffer in buffers}
    return inputs, [f"{name} = {buffer}.contiguous()" for buffer, name in inputs.items()]


def plain_arguments(
    one: Attention, places: Sequence[Placed], inputs: dict[str, str]
) -> list[Argument]:
    """Tensors that a kernel reads by address, each once, and the result."""
    found: dict[str, Argument] = {}
    read = [(place.buffer, place.dtype) for place in places]
    for buffer, dtype in [*read, *((it.buffer, it.dtype) for it in _beside(one))]:
        name = f"g_{buffer}"
        declaration = f"const {c_type(dtype)}* __restrict__ {name}"
        found[name] = Argument(name, declaration, inputs[buffer])
    result = f"g_{one.result.name}"
    declaration = f"{c_type(one.dtype)}* __restrict__ {result}"
    return [*found.values(), Argument(result, declaration, one.result.name)]
