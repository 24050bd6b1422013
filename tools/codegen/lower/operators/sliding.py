"""A tensor under a window, and convolutions in which no channel meets another.

Where a window's reads lie, and which of them may lie in the padding: each position of the window is
a read of its own, clamped into range where it may lie outside and chosen by a `where`. What is done
with what was read is the operator's business.

Convolutions in which no channel meets another are weighted sums over windows. Not here: those that
sum over channels, which stay with the library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, Space, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Address, Expr, Term, address
from kernelwright.tools.codegen.lower.nests.views import Atom, View
from kernelwright.tools.codegen.lower.operators.indexing import position, store
from kernelwright.tools.types import Node

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

    def read(self, space: Space, at: Sequence[int]) -> tuple[Expr, Expr | None]:
        """What lies at a position of the window, and whether it is inside; None if it always is."""
        fixed, terms = space.addresses[0], list[Term]()
        offset, inside = fixed.offset, None
        for number, (window, k) in enumerate(zip(self.windows, at, strict=True)):
            dim = self.first + number
            moved, more, within = self._along(space, dim, window, k)
            offset, terms = offset + moved, [*terms, *more]
            if within is not None:
                ops = self.context.ops
                inside = within if inside is None else ops("logical_and", inside, within)
        where = address(fixed.buffer, fixed.dtype, offset, [*fixed.terms, *terms])
        return self.context.read(where), inside

    def _along(
        self, space: Space, dim: int, window: Window, k: int
    ) -> tuple[int, list[Term], Expr | None]:
        """Offset, terms and condition of one dimension."""
        atoms, size = self.view.dims[dim], self.view.shape[dim]
        outputs, start = self.shape[dim], k * window.gap - window.low
        last = start + (outputs - 1) * window.step
        if start >= 0 and last < size:
            terms, step = list[Term](), window.step
            for name, extent in reversed(space.axes[dim]):
                terms += [Term(name, atom.step * step, extent) for atom in atoms]
                step *= extent
            return sum(atom.step * start for atom in atoms), terms, None
        ops = self.context.ops
        place = ops("add", ops("mul", position(self.context, space, dim), window.step), start)
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
