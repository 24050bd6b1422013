"""ATen's view operators: they make no step, only another View (or a copy where they must)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, UnlikeError
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import Node, TensorSpec

Meaning = Callable[[Context, Node, Arguments], tuple[View, ...]]


def _shape(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    """Every reshape, squeeze and flatten: the node says the shape that results."""
    x, shape = context.value(arguments.tensor(0)), node.out[0].shape
    return (context.held(views.reshape(x, shape), lambda y: views.reshape(y, shape), x),)


def _same(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    return (context.value(arguments.tensor(0)),)


def _permute(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    return (views.permute(x, arguments.integers(1, "dims") or ()),)


def _transpose(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    order = list(range(len(x.dims)))
    if len(order) > 1:
        first, second = arguments.integer(1, "dim0", 0), arguments.integer(2, "dim1", 1)
        order[first], order[second] = order[second], order[first]
    return (views.permute(x, order),)


def _unsqueeze(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    return (views.unsqueeze(context.value(arguments.tensor(0)), arguments.integer(1, "dim")),)


def _expand(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    return (views.expand(context.value(arguments.tensor(0)), node.out[0].shape),)


def _repeat(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    return (
        views.repeat(context.value(arguments.tensor(0)), arguments.integers(1, "repeats") or ()),
    )


def _slice(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    dim, step = arguments.integer(1, "dim"), arguments.integer(4, "step", 1)
    x = context.value(arguments.tensor(0))
    start, size = arguments.integer(2, "start"), x.shape[dim]
    start = max(0, start + size) if start < 0 else min(start, size)
    length = node.out[0].shape[dim]
    return (_narrowed(context, x, dim, start, length, step),)


def _narrowed(context: Context, x: View, dim: int, start: int, length: int, step: int = 1) -> View:
    return context.held(
        views.narrow(x, dim, start, length, step),
        lambda y: views.narrow(y, dim, start, length, step),
        x,
    )


def _select(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    dim, index = arguments.integer(1, "dim") % len(x.dims), arguments.integer(2, "index")
    narrowed = _narrowed(context, x, dim, index % x.shape[dim], 1)
    return (views.squeeze(narrowed, dim),)


def _split(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    dim = arguments.integer(2, "dim") % len(x.dims)
    parts, start = [], 0
    for spec in node.out:
        parts.append(_narrowed(context, x, dim, start, spec.shape[dim]))
        start += spec.shape[dim]
    return tuple(parts)


def _unbind(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    dim = arguments.integer(1, "dim") % len(x.dims)
    parts = [_narrowed(context, x, dim, at, 1) for at in range(x.shape[dim])]
    return tuple(views.squeeze(part, dim) for part in parts)


def _flip(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    return (views.flip(context.value(arguments.tensor(0)), arguments.integers(1, "dims") or ()),)


def _diagonal(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    which = (
        arguments.integer(1, "offset", 0),
        arguments.integer(2, "dim1", 0),
        arguments.integer(3, "dim2", 1),
    )
    return (context.held(views.diagonal(x, *which), lambda y: views.diagonal(y, *which), x),)


def _unfold(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    x = context.value(arguments.tensor(0))
    which = (arguments.integer(1), arguments.integer(2), arguments.integer(3))
    return (context.held(views.unfold(x, *which), lambda y: views.unfold(y, *which), x),)


def _as_strided(context: Context, node: Node, arguments: Arguments) -> tuple[View, ...]:
    """Defined by memory, so only where memory is known: of contiguous inputs and weights."""
    ref = arguments.tensor(0)
    x, traced = context.value(ref), context.specs[ref.node]
    if ref.node not in context.leaves:
        raise UnlikeError("only inputs and weights have strides that are known")
    size, stride = arguments.integers(1, "size") or (), arguments.integers(2, "stride") or ()
    known = traced.strides or views.contiguous_strides(traced.shape)
    if size == traced.shape and stride == known:
        return (x,)
    if known != views.contiguous_strides(traced.shape):
        raise UnlikeError("the traced tensor is not contiguous")
    flat = views.reshape(x, (prod(x.shape),))
    if flat is None or any(atom.step != 1 for atom in flat.dims[0]) or len(flat.dims[0]) > 1:
        x = context.copy(x)
    spec = TensorSpec(shape=size, dtype=x.dtype, strides=stride)
    moved = views.whole(x.buffer, spec)
    offset = x.offset + arguments.integer(3, "storage_offset", 0)
    return (View(x.buffer, x.dtype, offset, moved.dims, None),)


SHAPES: Mapping[str, Meaning] = {
    **dict.fromkeys(
        ("view", "reshape", "_unsafe_view", "squeeze", "flatten", "unflatten", "view_copy"), _shape
    ),
    **dict.fromkeys(
        ("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous", "positive"),
        _same,
    ),
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "unsqueeze": _unsqueeze,
    "expand": _expand,
    "repeat": _repeat,
    "slice": _slice,
    "select": _select,
    "split": _split,
    "split_with_sizes": _split,
    "unbind": _unbind,
    "flip": _flip,
    "diagonal": _diagonal,
    "unfold": _unfold,
    "as_strided": _as_strided,
}
