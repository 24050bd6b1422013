"""Spells operators that lay out memory by those that only say values, as a plan has no others.

How a result lies is the business of whoever writes it, so what asks for strides is a plain copy, or
memory as any other. `as_strided` reads whatever lies at some place; autograd writes it where a
forward changes a view in place, and a person for windows. Of a tensor that fills its memory, in
whatever order of dimensions, it is a piece of the flat tensor that is unfolded dimension by
dimension; what is scattered by it is put where the same view of the flat tensor's positions says.
Of a tensor with gaps in its memory, elements are picked by the places at which they lie.

Refused is what reads a gap, as that is nobody's value. Not covered, and left as they are:
scattering into a view, into a tensor with gaps, or by a view that overlaps itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import Argument

from kernelwright.tools.types import refuse

aten = torch.ops.aten


def _copy(node: fx.Node) -> None:
    node.target, node.args = aten.clone.default, node.args[:1]


def _empty(node: fx.Node) -> None:
    value = node.meta["val"]
    node.target, node.args = aten.empty.memory_format, (list(value.shape),)
    node.kwargs = {"dtype": value.dtype}


def _negative(node: fx.Node) -> None:
    """What a view only notes, as the imaginary part of a conjugate does."""
    node.target = aten.neg.default


def _strided(node: fx.Node) -> None:
    """Write the operator as views of its argument, in place, where that is possible."""
    source = cast("fx.Node", node.args[0])
    while not _fills_its_memory(source) and _is_view(source):
        source = source.all_input_nodes[0]
    flat = _flat(node, source)
    if flat is not None:
        _replace(node, _viewed(node, flat, *_geometry(node, 1)))
    elif _is_distinct(source.meta["val"].shape, source.meta["val"].stride()):
        _replace(node, _picked(node, source, *_geometry(node, 1)))


def _picked(
    node: fx.Node, source: fx.Node, sizes: list[int], strides: list[int], offset: int
) -> fx.Node:
    """The strided view of a tensor with gaps, of elements of that tensor alone."""
    value: torch.Tensor = source.meta["val"]
    first = offset - int(value.storage_offset())
    _check_gaps(value, torch.empty_strided(sizes, strides, device="meta"), first)
    reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    made = call_before(node, aten.arange.default, reach, device=value.device)
    rest = call_before(node, aten.add.Tensor, _viewed(node, made, sizes, strides, 0), first)
    index = None
    for dim in _order(value):
        step = value.stride(dim)
        at = call_before(node, aten.div.Tensor_mode, rest, step, rounding_mode="floor")
        at = call_before(node, aten.mul.Tensor, at, math.prod(value.shape[dim + 1 :]))
        index = at if index is None else call_before(node, aten.add.Tensor, index, at)
        rest = call_before(node, aten.remainder.Scalar, rest, step)
    listed = call_before(node, aten.reshape.default, source, [-1])
    return call_before(node, aten.index.Tensor, listed, [index])


def _check_gaps(value: torch.Tensor, view: torch.Tensor, first: int) -> None:
    """RefusedError where a view that begins so far behind a tensor's first element leaves it."""
    rest = torch.full(view.shape, first)
    for dim, (size, stride) in enumerate(zip(view.shape, view.stride(), strict=True)):
        rest += stride * torch.arange(size).view(-1, *[1] * (view.dim() - dim - 1))
    is_inside = rest >= 0
    for dim in _order(value):
        is_inside &= rest // value.stride(dim) < value.shape[dim]
        rest %= value.stride(dim)
    if not bool((is_inside & (rest == 0)).all()):
        raise refuse(
            "The forward reads memory between the elements of a strided tensor by as_strided; "
            "give it the whole tensor, or a contiguous copy."
        )


def _scattered(node: fx.Node) -> None:
    """Write `as_strided_scatter` as values that are put at positions, where that is possible."""
    source, values = (cast("fx.Node", at) for at in node.args[:2])
    sizes, strides, offset = _geometry(node, 2)
    flat = _flat(node, source) if _is_distinct(sizes, strides) else None
    if flat is None:
        return
    value = source.meta["val"]
    count = value.numel()
    made = call_before(node, aten.arange.default, count, device=value.device)
    at = call_before(node, aten.reshape.default, _viewed(node, made, sizes, strides, offset), [-1])
    listed = call_before(node, aten.reshape.default, values, [-1])
    put = call_before(node, aten.index_put.default, flat, [at], listed)
    order = _order(value)
    back = call_before(node, aten.view.default, put, [value.shape[dim] for dim in order])
    turned = [order.index(dim) for dim in range(len(order))]
    _replace(node, call_before(node, aten.permute.default, back, turned))


# What rewrites a node of each, in place.
SPELT: Mapping[object, Callable[[fx.Node], None]] = {
    aten._neg_view.default: _negative,
    aten.as_strided.default: _strided,
    aten.as_strided_scatter.default: _scattered,
    aten.empty_permuted.default: _empty,
    aten.empty_strided.default: _empty,
    aten.new_empty_strided.default: _empty,
    torch.ops.prims.copy_strided.default: _copy,
}


def _geometry(node: fx.Node, first: int) -> tuple[list[int], list[int], int]:
    """Sizes, strides and the offset, which begin at this argument."""
    sizes, strides = (list(cast("Sequence[int]", at)) for at in node.args[first : first + 2])
    given = node.args[first + 2] if len(node.args) > first + 2 else None
    if given is None:
        given = cast("fx.Node", node.args[0]).meta["val"].storage_offset()
    return sizes, strides, cast("int", given)


def _order(value: torch.Tensor) -> list[int]:
    """Its dimensions from the outermost in memory to the innermost."""
    strides = value.stride()
    return sorted(range(value.dim()), key=lambda dim: (-strides[dim], dim))


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.is_view


def _fills_its_memory(node: fx.Node) -> bool:
    value: torch.Tensor = node.meta["val"]
    whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
    return whole and value.permute(_order(value)).is_contiguous()


def _flat(node: fx.Node, source: fx.Node) -> fx.Node | None:
    """What fills the source's memory as one dimension; None where it does not."""
    if not _fills_its_memory(source):
        return None
    order = _order(source.meta["val"])
    if order != sorted(order):
        source = call_before(node, aten.permute.default, source, order)
    return call_before(node, aten.reshape.default, source, [-1])


def _is_distinct(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether no two elements lie at one place."""
    reach = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def _viewed(
    node: fx.Node, flat: fx.Node, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> fx.Node:
    """The strided view of a flat tensor."""
    extents = [1]  # of what the last dimensions reach over
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        extents.insert(0, (size - 1) * stride + extents[0])
    at = flat
    if extents[0] != flat.meta["val"].numel():
        at = call_before(node, aten.slice.Tensor, flat, 0, offset, offset + extents[0])
    if torch.empty_strided(sizes, strides, device="meta").is_contiguous():
        return call_before(node, aten.view.default, at, sizes)
    for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride and size > 1:
            at = call_before(node, aten.unfold.default, at, dim, extents[dim + 1], stride)
        else:
            at = call_before(node, aten.unsqueeze.default, at, dim)
    shape = [*sizes, extents[-1]]
    if list(at.meta["val"].shape) != shape:
        at = call_before(node, aten.expand.default, at, shape)
    return call_before(node, aten.squeeze.dim, at, len(sizes))


def call_before(before: fx.Node, target: OpOverload, *args: Argument, **named: Argument) -> fx.Node:
    """One more operator, with its value, before a node."""

    def value(at: fx.Node) -> Argument:
        return cast("Argument", at.meta["val"])

    values = (at.meta["val"] for at in (before, *args) if isinstance(at, fx.Node))
    mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    with before.graph.inserting_before(before), torch.no_grad(), mode:
        made = before.graph.call_function(target, args, named)
        made.meta["val"] = target(*fx.map_arg(args, value), **named)
    return made


def _replace(node: fx.Node, by: fx.Node) -> None:
    """Make a node another's copy, under its own name."""
    node.target, node.args, node.kwargs = aten.alias.default, (by,), {}
