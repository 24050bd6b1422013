"""Tensors read at other places: resampled, padded by their own values, rolled, cut into patches.

The positions are computed with ATen's own arithmetic (float32, but float64 for float64 tensors),
so that a coordinate on the edge of two pixels falls to the same side. No read is out of bounds.

Not here: bicubic resampling, sampling on a grid, and `fold`, which adds patches up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Expr, computed
from kernelwright.tools.codegen.lower.nests.views import Atom, View
from kernelwright.tools.codegen.lower.operators.indexing import INDEXING, Placed, store
from kernelwright.tools.types import DType, ListArg, Node, Scalar, TensorSpec

Meaning = Callable[[Context, Node, Arguments], None]


def _factors(node: Node, arguments: Arguments, first: int, rank: int) -> list[float | None]:
    """The scale factors that a person named, one a dimension; None where only sizes are known.

    The `vec` overloads hold them in a list, the others one argument a dimension.
    """
    found = arguments.get(first, "scale_factors")
    if node.op.endswith("vec"):
        items = found.items if isinstance(found, ListArg) else ()
        given = [item.value if isinstance(item, Scalar) else None for item in items]
    else:
        given = [arguments.scalar(first + at) for at in range(rank)]
    numbers = [float(v) if isinstance(v, int | float) and v > 0 else None for v in given]
    return [*numbers, *[None] * rank][:rank]


def _nearest(rank: int, *, exact: bool = False) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        shape, x = node.out[0].shape, context.value(arguments.tensor(0))
        scales = {
            len(shape) - rank + at: 1.0 / factor if factor else 0.0
            for at, factor in enumerate(_factors(node, arguments, 2, rank))
        }
        scales = {dim: scale or x.shape[dim] / shape[dim] for dim, scale in scales.items()}
        whole = [dim for dim, scale in scales.items() if _is_whole(x.shape[dim], shape[dim], scale)]
        x = _repeated(x, shape, whole)
        rest = [dim for dim in scales if dim not in whole]
        if not rest:
            context.values[node.name] = (x,)
            return
        placed, ops = Placed(context, x, shape, rest), context.ops
        places = {}
        for dim in rest:
            at = ops.cast(placed.at(dim), DType.FLOAT32)
            at = ops("mul", ops("add", at, 0.5) if exact else at, scales[dim])
            places[dim] = placed.clamped(dim, ops.cast(ops("floor", at), DType.INT64))
        store(context, node, placed.space, placed.read(places))

    return meaning


def _is_whole(size: int, outputs: int, scale: float) -> bool:
    """Whether each element is repeated a whole number of times: no coordinate is needed then."""
    times = outputs // size
    return outputs == times * size and scale == 1.0 / times


def _repeated(x: View, shape: Sequence[int], dims: Sequence[int]) -> View:
    """A view of each element of some dimensions several times, side by side."""
    if all(x.shape[dim] == shape[dim] for dim in dims):
        return x
    made = list(x.dims)
    for dim in dims:
        times = shape[dim] // x.shape[dim]
        made[dim] = (*x.dims[dim], Atom(times, 0)) if times > 1 else x.dims[dim]
    return View(x.buffer, x.dtype, x.offset, tuple(made), None)


def _linear(rank: int) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        x, shape = context.value(arguments.tensor(0)), node.out[0].shape
        dims = range(len(shape) - rank, len(shape))
        placed, aligned = Placed(context, x, shape, dims), arguments.flag(2, "align_corners")
        kind = computed(x.dtype)
        corners = [
            _corners(context, placed, dim, shape[dim], kind, aligned, factor)
            for dim, factor in zip(dims, _factors(node, arguments, 3, rank), strict=True)
        ]
        store(context, node, placed.space, _blended(context, placed, dims, corners, {}))

    return meaning


Corner = tuple[Expr, Expr]


def _corners(
    context: Context,
    placed: Placed,
    dim: int,
    outputs: int,
    kind: DType,
    aligned: bool,
    factor: float | None,
) -> tuple[Corner, Corner]:
    """Position and weight of the two neighbours of each output along a dimension."""
    ops, size = context.ops, placed.size(dim)
    at = ops.cast(placed.at(dim), kind)
    if aligned:
        source = ops("mul", at, (size - 1) / (outputs - 1) if outputs > 1 else 0.0)
    else:
        scale = 1.0 / factor if factor else size / outputs
        source = ops("sub", ops("mul", ops("add", at, 0.5), scale), 0.5)
        source = ops("maximum", source, 0.0)
    low = ops("minimum", ops.cast(source, DType.INT64), size - 1)
    high = ops("minimum", ops("add", low, 1), size - 1)
    far = ops("sub", source, ops.cast(low, kind))
    far = ops("minimum", ops("maximum", far, 0.0), 1.0)
    return (low, ops("sub", 1.0, far)), (high, far)


def _blended(
    context: Context,
    placed: Placed,
    dims: Sequence[int],
    corners: Sequence[tuple[Corner, Corner]],
    places: Mapping[int, Expr],
) -> Expr:
    """The weighted sum over both neighbours along every dimension, the first outermost."""
    if not dims:
        return placed.read(places)
    ops = context.ops
    parts = []
    for at, weight in corners[0]:
        inner = _blended(context, placed, dims[1:], corners[1:], {**places, dims[0]: at})
        parts.append(ops("mul", weight, inner))
    return ops("add", *parts)


def _padded(rank: int, *, mirrored: bool) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        x, shape = context.value(arguments.tensor(0)), node.out[0].shape
        widths = arguments.integers(1, "padding") or ()
        lows = {len(shape) - 1 - at: widths[2 * at] for at in range(rank)}
        placed, ops = Placed(context, x, shape, list(lows)), context.ops
        places = {}
        for dim, low in lows.items():
            at = ops("sub", placed.at(dim), low)
            if mirrored:
                last = placed.size(dim) - 1
                at = ops("sub", last, ops("abs", ops("sub", last, ops("abs", at))))
            places[dim] = placed.clamped(dim, at)
        store(context, node, placed.space, placed.read(places))

    return meaning


def _roll(context: Context, node: Node, arguments: Arguments) -> None:
    x, shape = context.value(arguments.tensor(0)), node.out[0].shape
    shifts, dims = arguments.integers(1, "shifts") or (), arguments.integers(2, "dims") or ()
    if not shape or len(shifts) != len(dims) or len(set(dims)) != len(dims):
        raise UnlikeError("a roll of the flattened tensor")
    moved = {dim % len(shape): shift for dim, shift in zip(dims, shifts, strict=True)}
    placed, ops = Placed(context, x, shape, list(moved)), context.ops
    places = {}
    for dim, shift in moved.items():
        size, at = shape[dim], placed.at(dim)
        before = ops("sub", at, shift % size)
        places[dim] = ops("where", ops("lt", before, 0), ops("add", before, size), before)
    store(context, node, placed.space, placed.read(places))


def _patches(context: Context, node: Node, arguments: Arguments) -> None:
    """im2col: every patch of an image as a column, read out of the padded image."""
    kernel, gaps, lows, steps = (arguments.integers(at) or () for at in (1, 2, 3, 4))
    given, spec = arguments.tensor(0), node.out[0]
    shape = context.value(given).shape
    if len(shape) != 4 or not all(len(each) == 2 for each in (kernel, gaps, lows, steps)):
        raise UnlikeError("patches of something else than a batch of images")
    widths = [Scalar(value=low) for low in (lows[1], lows[1], lows[0], lows[0])]
    sizes = (*shape[:2], shape[2] + 2 * lows[0], shape[3] + 2 * lows[1])
    padded = node.model_copy(update={
        "op": "aten.constant_pad_nd.default", "args": (given, ListArg(items=tuple(widths))),
        "kwargs": (), "out": (TensorSpec(shape=sizes, dtype=spec.dtype),),
    })  # fmt: skip
    INDEXING["constant_pad_nd"](context, padded, Arguments(padded))
    image = context.values[node.name][0]
    assert image is not None
    inside, places = list[Atom](), list[Atom]()
    for dim in (0, 1):
        (atom,) = image.dims[2 + dim] or (Atom(1, 0),)
        reach = gaps[dim] * (kernel[dim] - 1) + 1
        count = (atom.size - reach) // steps[dim] + 1
        inside.append(Atom(kernel[dim], atom.step * gaps[dim]))
        places.append(Atom(count, atom.step * steps[dim]))
    dims = (image.dims[0], (*image.dims[1], *_long(inside)), _long(places))
    context.values[node.name] = (View(image.buffer, image.dtype, image.offset, dims, None),)


def _long(atoms: Sequence[Atom]) -> tuple[Atom, ...]:
    return tuple(atom for atom in atoms if atom.size > 1)


RESAMPLING: Mapping[str, Meaning] = {
    **{f"upsample_nearest{rank}d": _nearest(rank) for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": _nearest(rank, exact=True) for rank in (1, 2, 3)},
    "upsample_linear1d": _linear(1),
    "upsample_bilinear2d": _linear(2),
    "upsample_trilinear3d": _linear(3),
    **{f"reflection_pad{rank}d": _padded(rank, mirrored=True) for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d": _padded(rank, mirrored=False) for rank in (1, 2, 3)},
    "roll": _roll,
    "im2col": _patches,
}
