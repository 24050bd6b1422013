"""Convolutions as products: sums over channels and the window's positions, as one nest.

Output channels are one side, the output's positions the other, and the depth is the input channels
of a group with the window's positions; groups are batches. A read that may lie in the padding is
made on a condition. A transposed convolution that moves by single steps is the same over the
turned window. One that moves by several makes, of every place of the input, a block of outputs as
large as a step: positions within the block are on the side of the output channels, as all of them
see the same few elements of the input, each through weights of its own.

Where windows pool all that a convolution makes, a place is a window and its outputs are a block.

An infinity or NaN of the input reaches all outputs of a block that see weights of zero there.

The input stays in memory: it is read by many outputs, so whatever makes it is computed once.

PyTorch rounds the factors of a float32 convolution to TF32 unless it is told not to, so kernels may
as well; the nest says so of each factor. Where the library keeps float32 all the same, so does the
nest.

With channels last, one of single positions is a product of matrices as any other is.

Not here: convolutions in which no channel meets another (`sliding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import (
    Arguments,
    Context,
    Space,
    UnlikeError,
    base,
)
from kernelwright.tools.codegen.lower.nests.expressions import (
    Address,
    Expr,
    Term,
    address,
    computed,
)
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.sliding import each
from kernelwright.tools.types import DType, Graph, Node, TensorSpec

# Fewer channels than these do not fill the shortest line of a tile.
_FEW_CHANNELS = 16
# Dimensions before those that the window slides along: batch, group, output channel of the group.
_BEFORE = 3
Axes = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class _Slide:
    """One dimension of outputs, `count` places of `block` each, and `taps` that every place sees.

    Place i and tap j read the input's position i x step + j x gap - low, and position r in a block
    one that is r x along further. It uses the weight's position (r x lead + j x turn + start) /
    every, where that is a whole number of the weight's `size`.
    """

    count: int
    taps: int
    step: int
    gap: int
    low: int
    size: int
    block: int = 1
    turn: int = 1
    start: int = 0
    every: int = 1
    lead: int = 1
    along: int = 0


@dataclass(frozen=True)
class _Convolution:
    """Factors by group: (batch, group, channel, ...) and (group, output channel, channel, ...)."""

    x: View
    weight: View
    slides: tuple[_Slide, ...]

    @property
    def rank(self) -> int:
        """Dimensions that the window slides along."""
        return len(self.slides)


def convolution(context: Context, node: Node, arguments: Arguments) -> None:
    """Adds the nest.

    Raises:
        UnlikeError: It is not asked for, or one of those that stay with the library.
    """
    out = node.out[0]
    if not context.lowering.convolutions or computed(out.dtype) is not DType.FLOAT32:
        raise UnlikeError("a convolution that stays with the library")
    pooled = context.pooled.get(node.name)
    found = _read(context, arguments, out.shape[2:], pooled.sizes if pooled else ())
    groups, outputs = found.weight.shape[:2]
    space = _space(context, found, (out.shape[0], groups, outputs))
    kept = _BEFORE + 2 * found.rank
    factors = (_input(context, found, space), _weight(context, found, space))
    is_tf32 = context.is_tf32 and not _keeps_float32(arguments)
    value = _multiplied(context, out.dtype, *factors, is_tf32=is_tf32)
    outer, inner = space.names(range(kept)), space.names(range(kept, len(space.axes)))
    if not inner:
        raise UnlikeError("a convolution that only scales")
    value = context.pool.make("reduce", value.dtype, (value,), word="sum")
    value = _plus_bias(context, arguments, space, value)
    whole = tuple(slide.count * slide.block for slide in found.slides)
    shape = (out.shape[0], groups * outputs, *whole)
    made = context.buffer(node.name, TensorSpec(shape=shape, dtype=out.dtype))
    written = _written(made, space, found, groups * outputs)
    context.add(Nest(outer, inner, (Write(written, value),)))
    context.values[node.name] = (_cropped(context, made, out.shape),)


def product_of_channels(context: Context, node: Node, x: View) -> None:
    """A convolution of single positions, with channels last on both sides, as a product.

    Its rows are the positions of all images, which lie one behind another.

    Args:
        context: The translation.
        node: The convolution, for which `is_of_channels` holds.
        x: What it convolves, in the order batch, positions, channels.
    """
    out, arguments = node.out[0], Arguments(node)
    matrix, bias = context.value(arguments.tensor(1)), arguments.ref(2)
    rank = len(x.shape)
    for _ in range(rank - 2):
        matrix = views.squeeze(matrix, 2)
    added = [views.unsqueeze(context.value(bias), 1)] if bias is not None else []
    shape = tuple(out.shape[at] for at in views.channels_last(rank))
    given = [views.unsqueeze(x, rank - 1), matrix, *added]
    space = context.space(given, (*shape, matrix.shape[1]))
    first, second, *added_up = (context.load(where, out.dtype) for where in space.addresses)
    value = _multiplied(context, out.dtype, first, second, is_tf32=context.is_tf32)
    value = context.pool.make("reduce", value.dtype, (value,), word="sum")
    for one in added_up:
        value = context.ops("add", value, one)
    made = context.buffer(node.name, TensorSpec(shape=shape, dtype=out.dtype))
    write = Write(space.at(made, range(rank)), value)
    context.add(Nest(space.names(range(rank)), space.names([rank]), (write,)))
    context.values[node.name] = (views.permute(made, views.channels_first(rank)),)


def is_of_channels(context: Context, node: Node, arguments: Arguments) -> bool:
    """Whether a convolution is one of single positions that is asked for as a product.

    One that leaves positions out stays with the library, as its rows are no whole tiles of memory,
    and so does what leaves the forward as it lies.
    """
    if (
        not (context.lowering.channels_last and context.lowering.products)
        or node.name in context.kept
    ):
        return False
    shape, given = (context.value(arguments.tensor(at)).shape for at in (1, 0))
    return _is_single(node, arguments, shape, given)


def convolves_positions(graph: Graph, node: Node) -> bool:
    """Whether a node is a convolution of single positions that leaves none of them out."""
    if base(node.op) != "convolution":
        return False
    arguments = Arguments(node)
    shape, given = (graph.node(arguments.tensor(at).node).out[0].shape for at in (1, 0))
    return _is_single(node, arguments, shape, given)


def _is_single(
    node: Node, arguments: Arguments, shape: tuple[int, ...], given: tuple[int, ...]
) -> bool:
    steps = {*(arguments.integers(3) or ()), *(one + 1 for one in arguments.integers(4) or ())}
    is_single = 2 < len(shape) == len(given) and prod(shape[2:]) == 1 and steps <= {1}
    plain = shape[1] > 1 and not arguments.flag(6) and arguments.integer(8) == 1
    return is_single and plain and computed(node.out[0].dtype) is DType.FLOAT32


def _keeps_float32(arguments: Arguments) -> bool:
    """Whether the library multiplies in float32 although TF32 is allowed.

    Transposed ones in groups that move by steps were 9e-8 off on an H200, where TF32's are 3e-4.
    """
    steps = any(step > 1 for step in arguments.integers(3) or ())
    return arguments.flag(6) and arguments.integer(8) > 1 and steps


def _read(
    context: Context,
    arguments: Arguments,
    outputs_shape: tuple[int, ...],
    windows: tuple[int, ...],
) -> _Convolution:
    x, weight = (context.value(arguments.tensor(at)) for at in (0, 1))
    rank, groups, transposed = len(weight.dims) - 2, arguments.integer(8), arguments.flag(6)
    if len(x.dims) != rank + 2:
        raise UnlikeError("a convolution without a batch")
    numbers = (each(arguments.integers(at), rank) for at in (3, 4, 5))
    slide = _turned if transposed else _plain
    sides = zip(outputs_shape, weight.shape[2:], *numbers, strict=True)
    outputs = weight.shape[1] if transposed else weight.shape[0] // groups
    inputs = x.shape[1] // groups
    slides = _in_blocks([slide(*side) for side in sides], windows, inputs)
    by_group = (groups, inputs, outputs) if transposed else (groups, outputs, inputs)
    weight = _held(context, weight, (*by_group, *weight.shape[2:]))
    if transposed:
        weight = views.permute(weight, (0, 2, 1, *range(3, rank + 3)))
    x = _held(context, x, (x.shape[0], groups, inputs, *x.shape[2:]))
    return _Convolution(x, weight, slides)


def _plain(count: int, size: int, step: int, low: int, gap: int) -> _Slide:
    return _Slide(count, size, step, gap, low, size)


def _turned(outputs: int, size: int, step: int, low: int, gap: int) -> _Slide:
    """Output o takes the input's position i through weight k where o + low = i x step + k x gap."""
    if step == 1:
        reach = (size - 1) * gap
        return _Slide(outputs, size, 1, gap, reach - low, size, turn=-1, start=size - 1)
    # Outputs of a block see the inputs from its own place back by `first` to `last`.
    first, last = -((low + step - 1) // step), ((size - 1) * gap - low) // step
    taps = max(0, last - first) + 1
    start = low + step * (first + taps - 1)
    count, back = -(-outputs // step), first + taps - 1
    return _Slide(count, taps, 1, 1, back, size, step, -step, start, gap)


def _in_blocks(
    slides: Sequence[_Slide], windows: Sequence[int], channels: int
) -> tuple[_Slide, ...]:
    """Slides whose places are windows, and positions in a block the outputs of one of them.

    Of few channels all outputs of a window see the same inputs, each through weights of its own,
    zero for those that others see alone: several taps fill what a tile holds of a row. Of more,
    each output sees its own.
    """
    whole = all(one.block == 1 and one.step == one.gap == 1 for one in slides)
    shared = whole and channels < _FEW_CHANNELS
    sides = zip(slides, windows, strict=True) if windows else ()
    blocks = [one if one.block > 1 else _block(one, size, shared) for one, size in sides]
    return tuple(blocks or slides)


def _block(slide: _Slide, size: int, shared: bool) -> _Slide:
    """The slide with so many outputs for a place."""
    made = replace(slide, count=-(-slide.count // size), step=slide.step * size, block=size)
    if shared:
        return replace(made, taps=slide.taps + size - 1, lead=-slide.turn)
    return replace(made, along=slide.step, lead=0)


def _held(context: Context, view: View, shape: Sequence[int]) -> View:
    """The view in another shape, each dimension of a single step."""
    found = views.reshape(view, shape)
    if found is None or any(len(dim) > 1 for dim in found.dims):
        found = views.reshape(context.copy(view), shape)
    if found is None:
        raise UnlikeError("a factor of no stride")
    return found


def _space(context: Context, found: _Convolution, sides: tuple[int, ...]) -> Space:
    """Axes of batch, group and output channel, places, positions in blocks, channel and taps."""
    nothing: tuple[tuple[views.Atom, ...], ...] = ((),) * found.rank
    batch, group, channel = found.x.dims[:_BEFORE]
    x = (batch, group, (), *nothing, *nothing, channel, *nothing)
    of_group, made, of_channel = found.weight.dims[:_BEFORE]
    weight = ((), of_group, made, *nothing, *nothing, of_channel, *nothing)
    both = (
        View(view.buffer, view.dtype, view.offset, dims, None)
        for view, dims in ((found.x, x), (found.weight, weight))
    )
    slides = found.slides
    shape = (*sides, *(one.count for one in slides), *(one.block for one in slides))
    return context.space([*both], (*shape, found.x.shape[2], *(one.taps for one in slides)))


def _axes(found: _Convolution, space: Space, at: int) -> tuple[Axes, Axes, Axes]:
    """Those of a dimension's places, its positions in a block, and its taps."""
    rank = found.rank
    first, second, third = _BEFORE + at, _BEFORE + rank + at, _BEFORE + 2 * rank + 1 + at
    return space.axes[first], space.axes[second], space.axes[third]


def _steps(axes: Axes, step: int) -> list[Term]:
    """Terms that move by a step for each position of a dimension."""
    terms = []
    for name, extent in reversed(axes):
        terms.append(Term(name, step, extent))
        step *= extent
    return terms


def _position(context: Context, terms: Sequence[Term], start: int) -> Expr:
    ops, place = context.ops, context.pool.const(start, DType.INT64)
    for term in terms:
        assert isinstance(term.by, str)
        place = ops("add", place, ops("mul", ops.pool.index(term.by), term.step))
    return place


class _Condition:
    """Bounds of positions, joined as far as they are needed."""

    def __init__(self, context: Context) -> None:
        self._ops = context.ops
        self.holds: Expr | None = None

    def within(self, place: Expr, terms: Sequence[Term], start: int, size: int) -> None:
        """Asks for a position of 0 to size - 1, where it may be another."""
        ends = [term.step * (term.size - 1) for term in terms]
        if start + sum(min(0, end) for end in ends) < 0:
            self.add(self._ops("ge", place, 0))
        if start + sum(max(0, end) for end in ends) >= size:
            self.add(self._ops("lt", place, size))

    def add(self, holds: Expr) -> None:
        """Asks for one more."""
        self.holds = holds if self.holds is None else self._ops("logical_and", self.holds, holds)


def _input(context: Context, found: _Convolution, space: Space) -> Expr:
    """What a place reads through a tap, zero in the padding."""
    fixed, inside = space.addresses[0], _Condition(context)
    offset, terms = fixed.offset, [*fixed.terms]
    for at, slide in enumerate(found.slides):
        atom = _atom(found.x, _BEFORE + at)
        places, block, taps = _axes(found, space, at)
        moves = [*_steps(places, slide.step), *_steps(taps, slide.gap)]
        moves += _steps(block, slide.along) if slide.along else []
        offset -= atom.step * slide.low
        terms += [Term(one.by, one.step * atom.step, one.size) for one in moves]
        place = _position(context, moves, -slide.low)
        inside.within(place, moves, -slide.low, found.x.shape[_BEFORE + at])
    return _load(context, found.x, offset, terms, inside)


def _weight(context: Context, found: _Convolution, space: Space) -> Expr:
    """The weight of a position in a block at a tap, zero where the window has none."""
    fixed, inside = space.addresses[1], _Condition(context)
    offset, terms = fixed.offset, [*fixed.terms]
    for at, slide in enumerate(found.slides):
        atom = _atom(found.weight, _BEFORE + at)
        _, block, taps = _axes(found, space, at)
        moves = _steps(taps, slide.turn)
        moves += _steps(block, slide.lead) if slide.lead else []
        place = _position(context, moves, slide.start)
        inside.within(place, moves, slide.start, (slide.size - 1) * slide.every + 1)
        if slide.every == 1:
            offset += atom.step * slide.start
            terms += [Term(one.by, one.step * atom.step, one.size) for one in moves]
            continue
        ops = context.ops
        inside.add(ops("eq", ops("remainder", place, slide.every), 0))
        index = ops("truncdiv", place, slide.every)
        terms.append(Term(index, atom.step, slide.size))
    return _load(context, found.weight, offset, terms, inside)


def _load(
    context: Context, view: View, offset: int, terms: Sequence[Term], inside: _Condition
) -> Expr:
    where = address(view.buffer, view.dtype, offset, terms)
    if inside.holds is None:
        return context.read(where)
    return context.pool.make("load", computed(where.dtype), (inside.holds,), address=where)


def _atom(view: View, dim: int) -> views.Atom:
    (atom,) = view.dims[dim] or (views.Atom(1, 0),)
    return atom


def _written(made: View, space: Space, found: _Convolution, channels: int) -> Address:
    """Where a result goes."""
    whole = tuple(slide.count * slide.block for slide in found.slides)
    pitches = [prod(whole[at + 1 :]) for at in range(len(whole))]
    outputs = found.weight.shape[1]
    steps = (channels * prod(whole), outputs * prod(whole), prod(whole))
    terms = [term for at, step in enumerate(steps) for term in _steps(space.axes[at], step)]
    for at, slide in enumerate(found.slides):
        places, block, _ = _axes(found, space, at)
        terms += _steps(places, pitches[at] * slide.block)
        terms += _steps(block, pitches[at])
    return address(made.buffer, made.dtype, 0, terms)


def _cropped(context: Context, made: View, shape: tuple[int, ...]) -> View:
    """The output without what the last blocks have too much."""
    view: View | None = made
    for dim, size in enumerate(shape):
        if view is not None and view.shape[dim] > size:
            view = views.narrow(view, dim, 0, size)
    if view is None:
        raise UnlikeError("an output of no stride")
    return view if view is made else context.copy(view)


def _multiplied(context: Context, dtype: DType, x: Expr, weight: Expr, *, is_tf32: bool) -> Expr:
    """The product of factors that say what they may be rounded to."""
    factors: tuple[Expr, ...] = (x, weight)
    if dtype is not DType.FLOAT32:
        factors = tuple(context.ops.cast(one, dtype) for one in factors)
    elif is_tf32:
        factors = tuple(context.pool.make("tf32", dtype, (one,)) for one in factors)
    return context.pool.make("mul", computed(dtype), factors)


def _plus_bias(context: Context, arguments: Arguments, space: Space, value: Expr) -> Expr:
    bias = arguments.ref(2)
    if bias is None:
        return value
    view = context.value(bias)
    terms = _steps((*space.axes[1], *space.axes[2]), _atom(view, 0).step)
    where = address(view.buffer, view.dtype, view.offset, terms)
    return context.ops("add", value, context.read(where))
