"""Pooling to a given size: windows that need not all be of one size.

Where the sizes divide, every window is the same, and this is ordinary pooling. Else output `o` of
`n` sees positions floor(o * size / n) to ceil((o + 1) * size / n), so windows differ by one: all
positions of the largest are read, and those beyond an output's own do not count.

Not here: where a maximum was found, and windows of too many positions; both stay with the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from kernelwright.tools.codegen.lower.nests.arguments import Arguments, UnlikeError
from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.expr import Expr, computed
from kernelwright.tools.codegen.lower.operators.indexing import store
from kernelwright.tools.codegen.lower.operators.placed import Placed
from kernelwright.tools.codegen.lower.operators.reductions import Reduction
from kernelwright.tools.codegen.lower.operators.sliding import MOST_POSITIONS
from kernelwright.tools.codegen.lower.operators.windows import WINDOWS
from kernelwright.tools.types import Arg, ListArg, Node, Scalar

Meaning = Callable[[Context, Node, Arguments], None]


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
