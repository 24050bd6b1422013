"""Convolutions as products: sums over channels and the window's positions, as one nest.

Output channels are one side, the output's positions the other, and the depth is the input channels
of a group with the window's positions; groups are batches. A read that may lie in the padding is
made on a condition. A transposed convolution that moves by single steps is the same over the
turned window. The input stays in memory: it is read by many outputs, so whatever makes it is
computed once.

PyTorch rounds the factors of a float32 convolution to TF32 unless it is told not to, so kernels may
as well; the nest says so of each factor.

Not here: convolutions in which no channel meets another (`sliding`), and transposed ones that
move by more than one step, which stay with the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, Space, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Expr, Term, address, computed
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.sliding import Window, each
from kernelwright.tools.types import DType, Node, TensorSpec

# Dimensions before those that the window slides along: batch, group, output channel of the group.
_BEFORE = 3


@dataclass(frozen=True)
class _Convolution:
    """Factors by group: (batch, group, channel, ...) and (group, output channel, channel, ...)."""

    x: View
    weight: View
    windows: tuple[Window, ...]
    flips: bool


def convolution(context: Context, node: Node, arguments: Arguments) -> None:
    """Adds the nest.

    Raises:
        UnlikeError: It is not asked for, or one of those that stay with the library.
    """
    if not context.convolutions or computed(node.out[0].dtype) is not DType.FLOAT32:
        raise UnlikeError("a convolution that stays with the library")
    found = _read(context, arguments)
    shape = _by_group(node.out[0].shape, found.weight.shape[0])
    space = _space(context, found, shape)
    dims = len(shape)
    factors = (_input(context, found, space, dims), _weight(context, found, space))
    value = _multiplied(context, node.out[0].dtype, *factors)
    outer, inner = space.names(range(dims)), space.names(range(dims, len(space.axes)))
    if not inner:
        raise UnlikeError("a convolution that only scales")
    value = context.pool.make("reduce", value.dtype, (value,), word="sum")
    value = _plus_bias(context, arguments, space, value)
    made = context.buffer(node.name, TensorSpec(shape=shape, dtype=node.out[0].dtype))
    value = context.ops.cast(value, computed(node.out[0].dtype))
    context.add(Nest(outer, inner, (Write(space.at(made, range(dims)), value),)))
    result = views.reshape(made, node.out[0].shape)
    context.values[node.name] = (made if result is None else result,)


def _read(context: Context, arguments: Arguments) -> _Convolution:
    x, weight = (context.value(arguments.tensor(at)) for at in (0, 1))
    rank, groups, transposed = len(weight.dims) - 2, arguments.integer(8), arguments.flag(6)
    steps, lows, gaps = (each(arguments.integers(at), rank) for at in (3, 4, 5))
    sizes = weight.shape[2:]
    if len(x.dims) != rank + 2:
        raise UnlikeError("a convolution without a batch")
    if transposed and any(step > 1 for step in steps):
        raise UnlikeError("a transposed convolution that moves by several steps")
    if transposed:
        lows = tuple((s - 1) * g - low for s, g, low in zip(sizes, gaps, lows, strict=True))
    windows = tuple(Window(*one) for one in zip(sizes, steps, lows, gaps, strict=True))
    outputs = weight.shape[1] if transposed else weight.shape[0] // groups
    inputs = x.shape[1] // groups
    by_group = (groups, inputs, outputs) if transposed else (groups, outputs, inputs)
    weight = _held(context, weight, (*by_group, *sizes))
    if transposed:
        weight = views.permute(weight, (0, 2, 1, *range(3, rank + 3)))
    x = _held(context, x, (x.shape[0], groups, inputs, *x.shape[2:]))
    return _Convolution(x, weight, windows, transposed)


def _held(context: Context, view: View, shape: Sequence[int]) -> View:
    """The view in another shape, each dimension of a single step."""
    found = views.reshape(view, shape)
    if found is None or any(len(dim) > 1 for dim in found.dims):
        found = views.reshape(context.copy(view), shape)
    if found is None:
        raise UnlikeError("a factor of no stride")
    return found


def _by_group(shape: Sequence[int], groups: int) -> tuple[int, ...]:
    return (shape[0], groups, shape[1] // groups, *shape[2:])


def _space(context: Context, found: _Convolution, shape: tuple[int, ...]) -> Space:
    """Axes of the output, then of the depth: the channel and the window's positions."""
    batch, group, channel = found.x.dims[:_BEFORE]
    still: tuple[tuple[views.Atom, ...], ...] = ((),) * (len(shape) - _BEFORE)
    taps: tuple[tuple[views.Atom, ...], ...] = ((),) * len(found.windows)
    x = (batch, group, (), *still, channel, *taps)
    of_group, made, channel, *window = found.weight.dims
    weight = ((), of_group, made, *still, channel, *window)
    both = (
        View(view.buffer, view.dtype, view.offset, dims, None)
        for view, dims in ((found.x, x), (found.weight, weight))
    )
    return context.space([*both], (*shape, *found.weight.shape[2:]))


def _input(context: Context, found: _Convolution, space: Space, dims: int) -> Expr:
    """What the window's position reads, zero in the padding."""
    ops, fixed = context.ops, space.addresses[0]
    offset, terms, inside = fixed.offset, [*fixed.terms], None
    for at, window in enumerate(found.windows):
        (atom,) = found.x.dims[_BEFORE + at] or (views.Atom(1, 0),)
        size, outputs = found.x.shape[_BEFORE + at], space.axes[_BEFORE + at]
        taps = space.axes[dims + 1 + at]
        offset -= atom.step * window.low
        place = ops.pool.const(-window.low, DType.INT64)
        for axes, step in ((outputs, window.step), (taps, window.gap)):
            for name, extent in reversed(axes):
                terms.append(Term(name, atom.step * step, extent))
                place = ops("add", place, ops("mul", ops.pool.index(name), step))
                step *= extent
        last = (_count(outputs) - 1) * window.step + (_count(taps) - 1) * window.gap - window.low
        for needed, holds in (
            (window.low > 0, ops("ge", place, 0)),
            (last >= size, ops("lt", place, size)),
        ):
            if needed:
                inside = holds if inside is None else ops("logical_and", inside, holds)
    where = address(fixed.buffer, fixed.dtype, offset, terms)
    if inside is None:
        return context.read(where)
    return context.pool.make("load", computed(where.dtype), (inside,), address=where)


def _count(axes: Sequence[tuple[str, int]]) -> int:
    total = 1
    for _, size in axes:
        total *= size
    return total


def _weight(context: Context, found: _Convolution, space: Space) -> Expr:
    """The window's own factor, turned where the convolution is transposed."""
    where = space.addresses[1]
    if not found.flips:
        return context.read(where)
    offset, turned = where.offset, {name for dim in space.axes[-len(found.windows) :] for name, _ in dim}
    terms = []
    for term in where.terms:
        if term.by in turned:
            offset += term.step * (term.size - 1)
        terms.append(Term(term.by, -term.step if term.by in turned else term.step, term.size))
    return context.read(address(where.buffer, where.dtype, offset, terms))


def _multiplied(context: Context, dtype: DType, x: Expr, weight: Expr) -> Expr:
    """The product of factors that say what they may be rounded to."""
    if dtype is DType.FLOAT32:
        factors = tuple(context.pool.make("tf32", dtype, (one,)) for one in (x, weight))
    else:
        factors = tuple(context.ops.cast(one, dtype) for one in (x, weight))
    return context.pool.make("mul", computed(dtype), factors)


def _plus_bias(context: Context, arguments: Arguments, space: Space, value: Expr) -> Expr:
    bias = arguments.ref(2)
    if bias is None:
        return value
    view, terms, axes = context.value(bias), list[Term](), (*space.axes[1], *space.axes[2])
    (atom,) = view.dims[0] or (views.Atom(1, 0),)
    step = atom.step
    for name, size in reversed(axes):
        terms.append(Term(name, step, size))
        step *= size
    return context.ops("add", value, context.read(address(view.buffer, view.dtype, view.offset, terms)))
