"""Sliding windows as nests: pooling, and convolutions in which no channel meets another.

A window that moves by its own size is a regrouping of dimensions and a reduction. Any other is
written out: one read for each of its positions, in a loop that reduces nothing, so that what
comes before and after fuses with it; how neighbours share their reads is the emitters' business.
A position that may lie in the padding is clamped into range and chosen by a `where`, so that
nothing is read out of bounds.

Not here: indices of a maximum, windows of more than `MOST_POSITIONS` that overlap, and
convolutions that sum over channels, all of which stay with the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from agents.playbook.lower.arguments import Arguments, UnlikeError, base
from agents.playbook.lower.context import Context, Space
from agents.playbook.lower.expr import Address, Expr, Term, address, computed
from agents.playbook.lower.indexing import position, store
from agents.playbook.lower.nest import Nest, Write
from agents.playbook.lower.reductions import reduced
from agents.playbook.lower.views import Atom, View
from tools.nouns import Node, TensorSpec

Meaning = Callable[[Context, Node, Arguments], None]

# Reads written out in one kernel; beyond that compilers slow down and registers spill.
MOST_POSITIONS = 128
# The second result of these says where the first was found.
_WITH_INDICES = frozenset(
    {
        *("max_pool2d_with_indices", "max_pool3d_with_indices", "cummax", "cummin"),
        *(f"adaptive_max_pool{rank}d" for rank in (1, 2, 3)),
    }
)


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


def reads_indices(node: Node, users: Mapping[str, tuple[Node, ...]]) -> bool:
    """Whether somebody wants to know where a maximum was."""
    if base(node.op) not in _WITH_INDICES:
        return False
    readers = users.get(node.name, ())
    return any("getitem" not in r.op or Arguments(r).integer(1) != 0 for r in readers)


def _windows(arguments: Arguments, rank: int, *, gap: int | None) -> list[Window]:
    """Kernel, stride, padding (and dilation at `gap`) of a pooling node."""
    kernel = _each(arguments.integers(1, "kernel_size"), rank)
    steps = _each(arguments.integers(2, "stride") or kernel, rank)
    lows = _each(arguments.integers(3, "padding") or (0,), rank)
    gaps = _each((arguments.integers(gap, "dilation") if gap else None) or (1,), rank)
    return [Window(*each) for each in zip(kernel, steps, lows, gaps, strict=True)]


def _each(values: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if not values:
        raise UnlikeError("a window of unknown size")
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _max_pool(rank: int) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        view = context.value(arguments.tensor(0))
        windows = _windows(arguments, rank, gap=4)
        sliding = Sliding(context, view, node.out[0].shape, windows)
        _store_max(context, node, sliding)
        context.values[node.name] = (context.values[node.name][0], None)

    return meaning


def _store_max(context: Context, node: Node, sliding: Sliding) -> None:
    if _reduced(context, node, sliding, "max", 1.0):
        return
    ops, space = context.ops, sliding.space()

    def read(at: Sequence[int]) -> Expr:
        x, inside = sliding.read(space, at)
        lowest = -math.inf if x.dtype.is_floating else -(2**63)
        return x if inside is None else ops("where", inside, x, context.pool.const(lowest, x.dtype))

    _store(context, node, space, _joined(context, "maximum", sliding, read))


def _joined(
    context: Context, op: str, sliding: Sliding, read: Callable[[Sequence[int]], Expr]
) -> Expr:
    """One operator over all positions of a window, dimension by dimension, halving each time.

    Neighbouring windows then share most of what they join, column by column and pair by pair, and
    a sum's rounding grows with the logarithm of the window.
    """
    _few(sliding)

    def along(dim: int, at: tuple[int, ...]) -> Expr:
        if dim < 0:
            return read(at)
        size = sliding.windows[dim].size
        return _halved(context, op, [along(dim - 1, (k, *at)) for k in range(size)])

    return along(len(sliding.windows) - 1, ())


def _halved(context: Context, op: str, parts: Sequence[Expr]) -> Expr:
    """Parts joined as a tree of powers of two, so that shifted windows have the same branches."""
    if not parts:
        raise UnlikeError("an empty window")
    if len(parts) == 1:
        return parts[0]
    low = 1 << (len(parts) - 1).bit_length() - 1
    return context.ops(op, *(_halved(context, op, part) for part in (parts[:low], parts[low:])))


def _average_pool(rank: int) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        view = context.value(arguments.tensor(0))
        windows = _windows(arguments, rank, gap=None)
        sliding = Sliding(context, view, node.out[0].shape, windows)
        counted = arguments.flag(5, "count_include_pad", True)
        given = arguments.scalar(6, "divisor_override")
        _store_average(
            context, node, sliding, counted, None if given is None else arguments.number(6)
        )

    return meaning


def _store_average(
    context: Context, node: Node, sliding: Sliding, counted: bool, given: float | None
) -> None:
    """A sum over what lies inside, divided as PyTorch does; see `_divisor`."""
    every = math.prod(window.size for window in sliding.windows)
    if _reduced(context, node, sliding, "sum", given or float(every)):
        return
    ops, space = context.ops, sliding.space()

    def read(at: Sequence[int]) -> Expr:
        x, inside = sliding.read(space, at)
        return x if inside is None else ops("where", inside, x, 0.0)

    total = _joined(context, "add", sliding, read)
    divisor = given or _divisor(context, space, sliding, counted)
    _store(context, node, space, ops("div", total, divisor))


def _divisor(context: Context, space: Space, sliding: Sliding, counted: bool) -> Expr:
    """How many positions count: those within the padded input, or within the input alone.

    Windows that `ceil_mode` lets reach beyond the padding are cut off there in both cases.
    """
    ops = context.ops
    count = context.pool.const(1.0, computed(sliding.view.dtype))
    for number, window in enumerate(sliding.windows):
        dim = sliding.first + number
        size, reach = sliding.view.shape[dim], window.low if counted else 0
        last = (sliding.shape[dim] - 1) * window.step - window.low
        if last + window.size <= size + reach and (counted or window.low == 0):
            count = ops("mul", count, float(window.size))
            continue
        start = ops("sub", ops("mul", position(context, space, dim), window.step), window.low)
        end = ops("minimum", ops("add", start, window.size), size + reach)
        length = ops("sub", end, ops("maximum", start, -reach))
        count = ops("mul", count, ops.cast(length, count.dtype))
    return count


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
    numbers = [_each(arguments.integers(at), rank) for at in (3, 4, 5)]
    sizes = weight.shape[2:]
    windows = [Window(*each) for each in zip(sizes, *numbers, strict=True)]
    sliding = Sliding(context, x, shape, windows)
    bias = arguments.ref(2)
    others = [context.value(bias)] if bias is not None else []
    space = sliding.space([_by_channel(other, rank) for other in others])
    ops = context.ops
    total: Expr | None = context.read(space.addresses[1]) if others else None
    for at in _few(sliding):
        value, inside = sliding.read(space, at)
        value = value if inside is None else ops("where", inside, value, 0.0)
        term = ops("mul", value, context.read(_weight(weight, space, at)))
        total = term if total is None else ops("add", total, term)
    _store(context, node, space, total)


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


def _few(sliding: Sliding) -> list[tuple[int, ...]]:
    if math.prod(window.size for window in sliding.windows) > MOST_POSITIONS:
        raise UnlikeError("a window of too many positions")
    return sliding.positions()


def _reduced(context: Context, node: Node, sliding: Sliding, kind: str, divisor: float) -> bool:
    """A reduction over the windows where outputs share nothing and windows are large."""
    few = math.prod(window.size for window in sliding.windows) <= MOST_POSITIONS
    found = None if few else sliding.apart()
    if found is None:
        return False
    space, inner, where = found
    x = context.load(where, sliding.view.dtype)
    value = reduced(context, kind, x, bool(inner))
    value = context.ops("div", value, divisor) if divisor != 1.0 else value
    spec = node.out[0]
    made = context.buffer(node.name, TensorSpec(shape=spec.shape, dtype=spec.dtype))
    outer = range(len(spec.shape))
    write = Write(space.at(made, outer), context.ops.cast(value, computed(spec.dtype)))
    context.add(Nest(space.names(outer), inner, (write,)))
    context.values[node.name] = (made,)
    return True


def _store(context: Context, node: Node, space: Space, value: Expr | None) -> None:
    if value is None:
        raise UnlikeError("an empty window")
    first = node.model_copy(update={"out": node.out[:1]})
    store(context, first, space, value)


WINDOWS: Mapping[str, Meaning] = {
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
}
