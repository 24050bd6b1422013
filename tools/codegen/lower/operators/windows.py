"""Pooling as nests: sliding windows, and windows made for a given output size.

A window that moves by its own size is a regrouping of dimensions and a reduction. Any other is
written out: one read for each of its positions, in a loop that reduces nothing, so that what
comes before and after fuses with it; how neighbours share their reads is the emitters' business.
A position that may lie in the padding is clamped into range and chosen by a `where`, so that
nothing is read out of bounds.

Pooling to a given size is ordinary pooling where the sizes divide, as every window is the same.
Else output `o` of `n` sees positions floor(o * size / n) to ceil((o + 1) * size / n), so windows
differ by one: all positions of the largest are read, and those beyond an output's own do not count.

Not here: depthwise convolutions (`sliding`), and indices of a maximum and windows of more than
`MOST_POSITIONS` that overlap or differ, which stay with the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from kernelwright.tools.codegen.lower.nests.context import (
    Arguments,
    Context,
    Space,
    UnlikeError,
    base,
)
from kernelwright.tools.codegen.lower.nests.expressions import Expr, computed
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.operators.indexing import Placed, position, store
from kernelwright.tools.codegen.lower.operators.reductions import Reduction, reduced
from kernelwright.tools.codegen.lower.operators.sliding import (
    MOST_POSITIONS,
    Sliding,
    Window,
    each,
    few,
    stored,
)
from kernelwright.tools.types import Arg, ListArg, Node, Scalar, TensorSpec

Meaning = Callable[[Context, Node, Arguments], None]

# The second result of these says where the first was found.
_WITH_INDICES = frozenset(
    {
        *("max_pool2d_with_indices", "max_pool3d_with_indices", "cummax", "cummin"),
        *(f"adaptive_max_pool{rank}d" for rank in (1, 2, 3)),
    }
)


def reads_indices(node: Node, users: Mapping[str, tuple[Node, ...]]) -> bool:
    """Whether somebody wants to know where a maximum was."""
    if base(node.op) not in _WITH_INDICES:
        return False
    readers = users.get(node.name, ())
    return any("getitem" not in r.op or Arguments(r).integer(1) != 0 for r in readers)


def _windows(arguments: Arguments, rank: int, *, gap: int | None) -> list[Window]:
    """Kernel, stride, padding (and dilation at `gap`) of a pooling node."""
    kernel = each(arguments.integers(1, "kernel_size"), rank)
    steps = each(arguments.integers(2, "stride") or kernel, rank)
    lows = each(arguments.integers(3, "padding") or (0,), rank)
    gaps = each((arguments.integers(gap, "dilation") if gap else None) or (1,), rank)
    return [Window(*each) for each in zip(kernel, steps, lows, gaps, strict=True)]


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

    stored(context, node, space, _joined(context, "maximum", sliding, read))


def _joined(
    context: Context, op: str, sliding: Sliding, read: Callable[[Sequence[int]], Expr]
) -> Expr:
    """One operator over all positions of a window, dimension by dimension, halving each time.

    Neighbouring windows then share most of what they join, column by column and pair by pair, and
    a sum's rounding grows with the logarithm of the window.
    """
    few(sliding)

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
    stored(context, node, space, ops("div", total, divisor))


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


def _reduced(context: Context, node: Node, sliding: Sliding, kind: str, divisor: float) -> bool:
    """A reduction over the windows where outputs share nothing and windows are large."""
    few = math.prod(window.size for window in sliding.windows) <= MOST_POSITIONS
    asked = any(one.node == node.name for one in context.pooled.values())
    found = sliding.apart() if asked or not few else None
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


WINDOWS: Mapping[str, Meaning] = {
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
}


def _adaptive(rank: int, *, highest: bool) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        first = node.model_copy(update={"out": node.out[:1]})
        x = context.value(arguments.tensor(0))
        inputs, outputs = x.shape[-rank:], first.out[0].shape[-rank:]
        if set(outputs) == {1}:
            reduction = Reduction(context, first, range(-rank, 0), first.out[0].dtype)
            reduction.store(reduction.reduce("max") if highest else reduction.mean())
        elif all(size % count == 0 for size, count in zip(inputs, outputs, strict=True)):
            _alike(context, node, [i // o for i, o in zip(inputs, outputs, strict=True)], highest)
        else:
            _unlike(context, first, arguments, rank, highest)
        context.values[node.name] = (context.values[node.name][0], *(None for _ in node.out[1:]))

    return meaning


def _alike(context: Context, node: Node, window: Sequence[int], highest: bool) -> None:
    """Ordinary pooling, by windows that move by their own size."""
    rank = len(window)
    name = f"max_pool{rank}d_with_indices" if highest else f"avg_pool{rank}d"
    if name not in WINDOWS:
        raise UnlikeError(name)
    size: Arg = ListArg(items=tuple(Scalar(value=each) for each in window))
    pool = node.model_copy(update={"op": f"aten.{name}.default", "args": (node.args[0], size)})
    WINDOWS[name](context, pool, Arguments(pool))


def _unlike(context: Context, node: Node, arguments: Arguments, rank: int, highest: bool) -> None:
    shape = node.out[0].shape
    dims = range(len(shape) - rank, len(shape))
    placed, ops = Placed(context, context.value(arguments.tensor(0)), shape, dims), context.ops
    starts, lengths, most = dict[int, Expr](), dict[int, Expr](), list[int]()
    for dim in dims:
        size, count, at = placed.size(dim), shape[dim], placed.at(dim)
        starts[dim] = ops("truncdiv", ops("mul", at, size), count)
        reach = ops("add", ops("mul", at, size), size + count - 1)
        lengths[dim] = ops("sub", ops("truncdiv", reach, count), starts[dim])
        most.append(max(-(-(o + 1) * size // count) - o * size // count for o in range(count)))
    if math.prod(most) > MOST_POSITIONS:
        raise UnlikeError("a window of too many positions")
    total: Expr | None = None
    for offsets in product(*map(range, most)):
        x = _read(context, placed, starts, lengths, dict(zip(dims, offsets, strict=True)), highest)
        total = x if total is None else ops("maximum" if highest else "add", total, x)
    if total is None:
        raise UnlikeError("an empty window")
    if not highest:
        for length in lengths.values():
            total = ops("div", total, ops.cast(length, computed(node.out[0].dtype)))
    store(context, node, placed.space, total)


def _read(
    context: Context,
    placed: Placed,
    starts: Mapping[int, Expr],
    lengths: Mapping[int, Expr],
    offsets: Mapping[int, int],
    highest: bool,
) -> Expr:
    """What lies at a position of the window; where the window ends before, what changes nothing."""
    ops = context.ops
    places = {dim: placed.clamped(dim, ops("add", starts[dim], k)) for dim, k in offsets.items()}
    x, inside = placed.read(places), None
    if not x.dtype.is_floating:
        raise UnlikeError("adaptive pooling of integers")
    for dim, k in offsets.items():
        within = ops("lt", k, lengths[dim])
        inside = within if inside is None else ops("logical_and", inside, within)
    nothing = context.pool.const(-math.inf if highest else 0.0, x.dtype)
    return x if inside is None else ops("where", inside, x, nothing)


ADAPTIVE: Mapping[str, Meaning] = {
    **{f"_adaptive_avg_pool{rank}d": _adaptive(rank, highest=False) for rank in (2, 3)},
    "adaptive_avg_pool1d": _adaptive(1, highest=False),
    **{f"adaptive_max_pool{rank}d": _adaptive(rank, highest=True) for rank in (1, 2, 3)},
}
