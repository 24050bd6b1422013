"""Convolutions in which no channel meets another: weighted sums over windows.

Those that sum over channels stay with the library.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.codegen.lower.nests.arguments import Arguments, UnlikeError
from kernelwright.tools.codegen.lower.nests.context import Context, Space
from kernelwright.tools.codegen.lower.nests.expr import Address, Expr, Term, address
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.sliding import Sliding, Window, each, few, stored
from kernelwright.tools.types import Node


def depthwise(context: Context, node: Node, arguments: Arguments) -> None:
    """A convolution with as many groups as channels: a weighted sum over a window.

    Raises:
        UnlikeError: channels meet, the convolution is transposed, or the window is too large.
    """
    x, weight = (context.value(arguments.tensor(at)) for at in (0, 1))
    shape, rank = node.out[0].shape, len(weight.dims) - 2
    channels = x.shape[1]
    if arguments.flag(6) or arguments.integer(8) != channels or shape[1] != channels:
        raise UnlikeError("channels meet")
    numbers = [each(arguments.integers(at), rank) for at in (3, 4, 5)]
    sizes = weight.shape[2:]
    windows = [Window(*each) for each in zip(sizes, *numbers, strict=True)]
    sliding = Sliding(context, x, shape, windows)
    bias = arguments.ref(2)
    others = [context.value(bias)] if bias is not None else []
    space = sliding.space([_by_channel(other, rank) for other in others])
    ops = context.ops
    total: Expr | None = context.read(space.addresses[1]) if others else None
    for at in few(sliding):
        value, inside = sliding.read(space, at)
        value = value if inside is None else ops("where", inside, value, 0.0)
        term = ops("mul", value, context.read(_weight(weight, space, at)))
        total = term if total is None else ops("add", total, term)
    stored(context, node, space, total)


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
