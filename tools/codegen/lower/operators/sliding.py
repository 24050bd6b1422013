"""A tensor under a window, and convolutions in which no channel meets another.

Where a window's reads lie, and which of them may lie in the padding: each position of the window is
a read of its own, clamped into range where it may lie outside and chosen by a `where`. What is done
with what was read is the operator's business.

Convolutions in which no channel meets another are weighted sums over windows: written out, a term
for each position, or, where those are asked for, as reductions over the window, however large it
is. Not here: convolutions that sum over channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

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
from kernelwright.tools.codegen.lower.nests.views import (
    Atom,
    View,
    channels_first,
    channels_last,
    permute,
)
from kernelwright.tools.codegen.lower.operators.indexing import position, store
from kernelwright.tools.types import DType, Graph, Node, TensorSpec

# Reads written out in one kernel; beyond that compilers slow down and registers spill.
MOST_POSITIONS = 128


@dataclass(frozen=True)
class Window:
    """One dimension: output `o` and position `k` of the window read `o * step + k * gap - low`."""

    size: int
    step: int
    low: int
    gap: int

    def alone(self, outputs: int, inputs: int) -> bool:
        """Whether no two outputs read the same element, and none reads padding."""
        whole = self.low == 0 and self.gap == 1 and self.step == self.size
        return whole and outputs * self.step <= inputs


class Sliding:
    """A tensor under a window: its trailing dimensions slide, the others stay."""

    def __init__(
        self, context: Context, view: View, shape: Sequence[int], windows: Sequence[Window]
    ) -> None:
        self.context, self.windows = context, tuple(windows)
        self.first = len(shape) - len(windows)
        sliding = range(self.first, len(shape))
        if any(len(view.dims[dim]) > 1 for dim in sliding):
            view = context.copy(view)
        self.view, self.shape = view, tuple(shape)
        still = tuple(() if dim in sliding else atoms for dim, atoms in enumerate(view.dims))
        self._still = View(view.buffer, view.dtype, view.offset, still, None)

    def space(self, others: Sequence[View] = ()) -> Space:
        """Axes of the output; the first address is the tensor's without its sliding part."""
        return self.context.space([self._still, *others], self.shape)

    def positions(self) -> list[tuple[int, ...]]:
        """Every position of the window, in row-major order."""
        return list(product(*(range(window.size) for window in self.windows)))

    def whole_space(self, others: Sequence[View] = ()) -> Space:
        """Axes of the output, then of the window's positions; addresses as in `space`."""
        rank = len(self.windows)
        still = View(
            self._still.buffer,
            self._still.dtype,
            self._still.offset,
            (*self._still.dims, *((),) * rank),
            None,
        )
        sizes = (window.size for window in self.windows)
        return self.context.space([still, *others], (*self.shape, *sizes))

    def read(self, space: Space, at: Sequence[int]) -> tuple[Expr, Expr | None]:
        """What lies at a position of the window, and whether it is inside; None if it always is."""
        starts = [k * one.gap - one.low for one, k in zip(self.windows, at, strict=True)]
        return self._read(space, [(start, None) for start in starts])

    def read_whole(self, space: Space) -> tuple[Expr, Expr | None]:
        """The same for every position, along the axes that `whole_space` has for them."""
        rank = len(self.shape)
        return self._read(space, [(-one.low, rank + at) for at, one in enumerate(self.windows)])

    def _read(
        self, space: Space, starts: Sequence[tuple[int, int | None]]
    ) -> tuple[Expr, Expr | None]:
        """What lies where each dimension starts, and on by its dimension of taps, if it has one."""
        fixed, terms = space.addresses[0], list[Term]()
        offset, inside = fixed.offset, None
        for number, (window, (start, taps)) in enumerate(zip(self.windows, starts, strict=True)):
            dim = self.first + number
            moved, more, within = self._along(space, dim, window, start, taps)
            offset, terms = offset + moved, [*terms, *more]
            if within is not None:
                ops = self.context.ops
                inside = within if inside is None else ops("logical_and", inside, within)
        where = address(fixed.buffer, fixed.dtype, offset, [*fixed.terms, *terms])
        return self.context.read(where), inside

    def _along(
        self, space: Space, dim: int, window: Window, start: int, taps: int | None
    ) -> tuple[int, list[Term], Expr | None]:
        """Offset, terms and condition of one dimension."""
        atoms, size = self.view.dims[dim], self.view.shape[dim]
        moves = [(dim, window.step), *([] if taps is None else [(taps, window.gap)])]
        last = start + sum((space.size(at) - 1) * step for at, step in moves)
        if start >= 0 and last < size:
            terms = list[Term]()
            for at, step in moves:
                for name, extent in reversed(space.axes[at]):
                    terms += [Term(name, atom.step * step, extent) for atom in atoms]
                    step *= extent
            return sum(atom.step * start for atom in atoms), terms, None
        ops = self.context.ops
        place = ops.pool.const(0, DType.INT64)
        for at, step in moves:
            place = ops("add", place, ops("mul", position(self.context, space, at), step))
        place = ops("add", place, start)
        low, high = ops("ge", place, 0), ops("lt", place, size)
        clamped = ops("minimum", ops("maximum", place, 0), size - 1)
        if start >= 0:
            low, clamped = ops.pool.const(True, low.dtype), ops("minimum", place, size - 1)
        elif last < size:
            high, clamped = ops.pool.const(True, high.dtype), ops("maximum", place, 0)
        within = low if _always(high) else high if _always(low) else ops("logical_and", low, high)
        return 0, [Term(clamped, atom.step, atom.size) for atom in atoms], within

    def apart(self) -> tuple[Space, tuple[str, ...], Address] | None:
        """Axes of output and window and the read, where outputs share nothing; else None."""
        sizes = list(zip(self.shape[self.first :], self.view.shape[self.first :], strict=True))
        if not all(w.alone(o, i) for w, (o, i) in zip(self.windows, sizes, strict=True)):
            return None
        outer, inner = list[tuple[Atom, ...]](), list[tuple[Atom, ...]]()
        for number, window in enumerate(self.windows):
            (atom,) = self.view.dims[self.first + number] or (Atom(1, 0),)
            count = self.shape[self.first + number]
            outer.append((Atom(count, atom.step * window.step),) if count > 1 else ())
            inner.append((Atom(window.size, atom.step),) if window.size > 1 else ())
        dims = (*self.view.dims[: self.first], *outer, *inner)
        view = View(self.view.buffer, self.view.dtype, self.view.offset, dims, None)
        space = self.context.space([view], view.shape)
        names = space.names(range(len(self.shape), len(dims)))
        return space, names, space.addresses[0]


def _always(condition: Expr) -> bool:
    return condition.op == "const" and bool(condition.value)


def few(sliding: Sliding) -> list[tuple[int, ...]]:
    """Every position of a window that is small enough to be written out.

    Raises:
        UnlikeError: It is not.
    """
    if math.prod(window.size for window in sliding.windows) > MOST_POSITIONS:
        raise UnlikeError("a window of too many positions")
    return sliding.positions()


def each(values: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """A value for each sliding dimension, of which one may stand for all.

    Raises:
        UnlikeError: There is none.
    """
    if not values:
        raise UnlikeError("a window of unknown size")
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def stored(context: Context, node: Node, space: Space, value: Expr | None) -> None:
    """Stores what a window gives as the node's first result.

    Raises:
        UnlikeError: The window has no position.
    """
    if value is None:
        raise UnlikeError("an empty window")
    first = node.model_copy(update={"out": node.out[:1]})
    store(context, first, space, value)


def is_depthwise(arguments: Arguments, x: Sequence[int], weight: Sequence[int]) -> bool:
    """Whether a convolution has as many groups as channels, and an output for each.

    Args:
        arguments: The convolution's.
        x: The shape of what it convolves.
        weight: The shape of its weight.
    """
    alone = arguments.integer(8) == x[1] == weight[0]
    return alone and len(x) == len(weight) and not arguments.flag(6)


def depthwise(
    context: Context, node: Node, arguments: Arguments, lying: View | None = None
) -> None:
    """A convolution with as many groups as channels: a weighted sum over a window.

    `lying` is its input as it lies with channels last, where the result shall lie so too.

    Raises:
        UnlikeError: channels meet, the convolution is transposed, or the window is too large.
    """
    x, weight = (context.value(arguments.tensor(at)) for at in (0, 1))
    if not is_depthwise(arguments, x.shape, weight.shape):
        raise UnlikeError("channels meet")
    x = x if lying is None else lying
    shape, rank = node.out[0].shape, len(weight.dims) - 2
    numbers = [each(arguments.integers(at), rank) for at in (3, 4, 5)]
    sizes = weight.shape[2:]
    windows = [Window(*each) for each in zip(sizes, *numbers, strict=True)]
    sliding = Sliding(context, x, shape, windows)
    bias = arguments.ref(2)
    others = [context.value(bias)] if bias is not None else []
    if context.lowering.sums_windows and is_summed(sizes):
        _summed(context, node, sliding, weight, others, lies_last=lying is not None)
        return
    space = sliding.space([_by_channel(other, rank) for other in others])
    ops = context.ops
    total: Expr | None = context.read(space.addresses[1]) if others else None
    for at in few(sliding):
        value, inside = sliding.read(space, at)
        value = value if inside is None else ops("where", inside, value, 0.0)
        term = ops("mul", value, context.read(_weight(weight, space, at)))
        total = term if total is None else ops("add", total, term)
    stored(context, node, space, total)


# Positions along one side of a window that is summed: a thread holds the weights of a side.
_LONGEST = 32


def is_summed(sizes: Sequence[int]) -> bool:
    """Whether a window is worth a reduction: with a single line none is shared."""
    return any(size > 1 for size in sizes[:-1]) and max(sizes) <= _LONGEST


def weighs_windows(graph: Graph, node: Node) -> bool:
    """Whether a node is a convolution in which no channel meets another, and may be summed."""
    if base(node.op) != "convolution":
        return False
    arguments = Arguments(node)
    x, weight = (graph.node(arguments.tensor(at).node).out[0].shape for at in (0, 1))
    return is_depthwise(arguments, x, weight) and is_summed(weight[2:])


def _summed(
    context: Context,
    node: Node,
    sliding: Sliding,
    weight: View,
    biases: Sequence[View],
    *,
    lies_last: bool,
) -> None:
    """The sum as a reduction over the window's positions."""
    rank, ops = len(sliding.windows), context.ops
    spread = ((), weight.dims[0], *((),) * rank, *weight.dims[2:])
    weights = View(weight.buffer, weight.dtype, weight.offset, spread, None)
    space = sliding.whole_space([weights, *(_by_channel(one, 2 * rank) for one in biases)])
    value, inside = sliding.read_whole(space)
    value = value if inside is None else ops("where", inside, value, 0.0)
    value = ops("mul", value, context.read(space.addresses[1]))
    value = context.pool.make("reduce", value.dtype, (value,), word="sum")
    value = ops("add", value, context.read(space.addresses[2])) if biases else value
    _stored_reduction(context, node, space, value, lies_last=lies_last)


def _stored_reduction(
    context: Context, node: Node, space: Space, value: Expr, *, lies_last: bool
) -> None:
    """Stores what reductions over the dimensions of windows give as the node's result."""
    spec, rank = node.out[0], len(node.out[0].shape)
    order = channels_last(rank) if lies_last else tuple(range(rank))
    shape = tuple(spec.shape[at] for at in order)
    made = context.buffer(node.name, TensorSpec(shape=shape, dtype=spec.dtype))
    made = permute(made, channels_first(rank)) if lies_last else made
    outer = range(len(spec.shape))
    inner = space.names(range(len(spec.shape), len(space.axes)))
    write = Write(space.at(made, outer), context.ops.cast(value, computed(spec.dtype)))
    context.add(Nest(space.names(outer), inner, (write,)))
    context.values[node.name] = (made,)


def _by_channel(view: View, rank: int) -> View:
    """A vector over channels, as it broadcasts over the windows' dimensions."""
    return View(view.buffer, view.dtype, view.offset, (*view.dims, *((),) * rank), None)


def _weight(weight: View, space: Space, at: Sequence[int]) -> Address:
    """The weight of the channel at a position of the window."""
    terms, step = list[Term](), 1
    for name, extent in reversed(space.axes[1]):
        terms += [Term(name, atom.step * step, extent) for atom in weight.dims[0]]
        step *= extent
    offset = weight.offset
    for dim, k in zip(weight.dims[2:], at, strict=True):
        if len(dim) > 1:
            raise UnlikeError("a weight of no single stride")
        offset += sum(atom.step * k for atom in dim)
    return address(weight.buffer, weight.dtype, offset, terms)
