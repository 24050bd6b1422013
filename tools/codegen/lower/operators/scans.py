"""A scan between constants: one scan as long as what it is put into.

`cat(zeros, cumsum(x))` and a padded cumulative sum need not be a scan and a copy of it: over the
longer row, what lies outside of the scanned part is scanned as the identity, and where a constant
is wanted it is chosen afterwards. The result is then written in one piece, whole vectors of it,
and only the reads are shifted. Running through the identity changes no value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, base
from kernelwright.tools.codegen.lower.nests.expressions import NARROW, Expr, computed
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.indexing import Placed
from kernelwright.tools.types import DType, Node, Ref, TensorSpec

# What a running sum and a running product may meet as often as they like.
_IDENTITIES = {"cumsum": ("sum", 0), "cumprod": ("prod", 1)}


@dataclass(frozen=True)
class Fill:
    """A constant at positions `begin` to `end` (excluded) of the longer row."""

    begin: int
    end: int
    value: Expr


def _in_cat(context: Context, node: Node, arguments: Arguments) -> bool:
    """Translates a cat of one scan and constants; False where it is no such cat."""
    pieces = [ref for ref in arguments.tensors(0) if ref is not None]
    sizes = [context.value(ref).shape for ref in pieces]
    dim = arguments.integer(1, "dim", 0) % len(node.out[0].shape)
    start, fills, running = 0, list[Fill](), list[tuple[int, Ref]]()
    for ref, shape in zip(pieces, sizes, strict=True):
        if not prod(shape):
            continue
        fill = context.fills.get(context.value(ref).buffer)
        if fill is None:
            running.append((start, ref))
        else:
            fills.append(Fill(start, start + shape[dim], fill))
        start += shape[dim]
    if len(running) != 1 or not fills:
        return False
    ((start, ref),) = running
    return _widened(context, node, ref, dim, start, fills)


def _in_padding(context: Context, node: Node, arguments: Arguments) -> bool:
    """Translates a scan padded along its own dimension; False where it is none."""
    ref, widths = arguments.tensor(0), arguments.integers(1, "pad") or ()
    shape = context.value(ref).shape
    padded = [at for at in range(0, len(widths), 2) if widths[at] or widths[at + 1]]
    if len(padded) != 1 or min(widths) < 0:
        return False
    (at,) = padded
    dim, low = len(shape) - 1 - at // 2, widths[at]
    number = arguments.number(2, "value", 0.0)
    value = context.pool.const(number, computed(node.out[0].dtype))
    end = low + shape[dim]
    ends = [Fill(0, low, value), Fill(end, end + widths[at + 1], value)]
    fills = [fill for fill in ends if fill.begin < fill.end]
    return _widened(context, node, ref, dim, low, fills)


def _in_slice(context: Context, node: Node, arguments: Arguments) -> bool:
    """Translates a constant tensor of which a scan takes one slice; False where it is none."""
    x, ref = context.value(arguments.tensor(0)), arguments.tensor(1)
    dim = arguments.integer(2, "dim", 0) % len(x.dims)
    size, start = x.shape[dim], arguments.integer(3, "start", 0)
    start = max(0, start + size) if start < 0 else min(start, size)
    end = start + context.value(ref).shape[dim]
    value = context.fills.get(x.buffer)
    if value is None or arguments.integer(5, "step", 1) != 1 or end - start == size:
        return False
    ends = [Fill(0, start, value), Fill(end, size, value)]
    fills = [fill for fill in ends if fill.begin < fill.end]
    return _widened(context, node, ref, dim, start, fills)


def _widened(
    context: Context, node: Node, piece: Ref, dim: int, start: int, fills: Sequence[Fill]
) -> bool:
    """Scans the longer row where `piece` is all or the beginning of a scan that nobody else reads.

    The piece begins at `start` along `dim`; the fills are what lies before and behind it.
    """
    view = context.value(piece)
    scan = context.scans.get(view.buffer)
    if scan is None or base(scan.op) not in _IDENTITIES:
        return False
    turned = _turned(context, view, dim)
    along = Arguments(scan).integer(1, "dim") % len(view.dims)
    spec, count, size = node.out[0], view.shape[dim], node.out[0].shape[dim]
    exact = scan.out[0].dtype not in NARROW or scan.out[0].dtype is spec.dtype
    alone = {piece.node, scan.name} <= context.single
    if turned is None or along != dim or not exact or not alone or size > 2 * count:
        return False
    if turned:
        start = size - start - count
        fills = [Fill(size - fill.end, size - fill.begin, fill.value) for fill in fills]
    _written(context, node, scan, dim, start, fills, turned)
    return True


def _turned(context: Context, view: View, dim: int) -> bool | None:
    """Whether a view of a scan runs backwards; None where it is not the scan's beginning."""
    buffer = context.buffers[view.buffer]
    all_of_it = views.whole(view.buffer, TensorSpec(shape=buffer.shape, dtype=buffer.dtype))
    if len(view.dims) != len(all_of_it.dims) or len(view.dims[dim]) != 1:
        return None
    turned = view.dims[dim][0].step < 0
    forward = views.flip(view, [dim]) if turned else view
    beginning = views.narrow(all_of_it, dim, 0, forward.shape[dim])
    same = beginning is not None and beginning.dims == forward.dims
    return turned if same and forward.offset == 0 else None


def _written(
    context: Context, node: Node, scan: Node, dim: int, start: int, fills: Sequence[Fill],
    turned: bool,
) -> None:  # fmt: skip
    ops, spec = context.ops, node.out[0]
    kind, identity = _IDENTITIES[base(scan.op)]
    count = spec.shape[dim] - sum(fill.end - fill.begin for fill in fills)
    x = context.value(Arguments(scan).tensor(0))
    x = context.held(
        views.narrow(x, dim, 0, count), lambda copy: views.narrow(copy, dim, 0, count), x
    )
    placed = Placed(context, x, spec.shape, [dim])
    place = placed.at(dim)
    taken = _within(ops, placed, dim, start, spec.shape[dim], computed(scan.out[0].dtype), identity)
    value = ops.cast(
        context.pool.make("scan", taken.dtype, (taken,), word=kind), computed(spec.dtype)
    )
    for fill in fills:
        constant = ops.cast(fill.value, value.dtype)
        if fill.end > start or constant.value != identity:
            here = ops("logical_and", ops("ge", place, fill.begin), ops("lt", place, fill.end))
            value = ops("where", here, constant, value)
    made = context.buffer(node.name, TensorSpec(shape=spec.shape, dtype=spec.dtype))
    target = views.flip(made, [dim]) if turned else made
    outer = placed.space.names([at for at in range(len(spec.shape)) if at != dim])
    write = Write(placed.space.at(target), value)
    context.add(Nest(outer, placed.space.names((dim,)), (write,)))
    context.values[node.name] = (made,)


def _within(
    ops: Ops, placed: Placed, dim: int, start: int, length: int, dtype: DType, identity: int
) -> Expr:
    """What is scanned: the element that lies `start` positions before, else the identity."""
    at, size = ops("sub", placed.at(dim), start), placed.size(dim)
    inside, clamped = ops.pool.const(True, DType.BOOL), at
    if start:
        inside, clamped = ops("ge", at, 0), ops("maximum", at, 0)
    if length > start + size:
        below = ops("lt", at, size)
        inside = ops("logical_and", inside, below) if start else below
        clamped = ops("minimum", clamped, size - 1)
    read = ops.cast(placed.read({dim: clamped}), dtype)
    return ops("where", inside, read, identity)


WIDENED: Mapping[str, Callable[[Context, Node, Arguments], bool]] = {
    "cat": _in_cat,
    "constant_pad_nd": _in_padding,
    "slice_scatter": _in_slice,
}
