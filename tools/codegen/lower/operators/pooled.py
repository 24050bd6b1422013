"""Which windows take whole what a convolution makes: pooling that folds can do in its epilogue.

Between the two stand pointwise operators alone, which keep the shape, and nothing else reads any of
it. Windows move by their own size and lie inside of the tensor. The convolution then makes blocks
of outputs as large as a window, and a window is a block.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.tools.codegen.lower.nests.context import Arguments, Pooled, base
from kernelwright.tools.codegen.lower.operators.pointwise import POINTWISE
from kernelwright.tools.codegen.lower.operators.sliding import each
from kernelwright.tools.types import Graph, Node
from kernelwright.tools.types.graph import refs

_RANKS = {
    "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3,
    "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3,
}  # fmt: skip
_CONVOLUTION = "convolution"


def pooled_by(graph: Graph) -> Mapping[str, Pooled]:
    """The pooling behind each convolution that has one, by the convolution's name."""
    found = {}
    for node in graph.nodes:
        pooling = _behind(graph, node) if base(node.op) == _CONVOLUTION else None
        if pooling is not None:
            found[node.name] = pooling
    return found


def _behind(graph: Graph, made: Node) -> Pooled | None:
    """The one reader of all that is pointwise behind a node."""
    same, readers = {made.name}, list[Node]()
    for node in graph.nodes:
        if not same & {*refs(node)}:
            continue
        if base(node.op) in POINTWISE and node.out[0].shape == made.out[0].shape:
            same.add(node.name)
        else:
            readers.append(node)
    kept = {*graph.outputs, *(mutation.node for mutation in graph.mutations)}
    return None if len(readers) != 1 or same & kept else _pooling(readers[0])


def _pooling(node: Node) -> Pooled | None:
    rank = _RANKS.get(base(node.op))
    if rank is None:
        return None
    arguments = Arguments(node)
    sizes = each(arguments.integers(1, "kernel_size"), rank)
    steps = each(arguments.integers(2, "stride") or sizes, rank)
    lows = each(arguments.integers(3, "padding") or (0,), rank)
    is_max = base(node.op).startswith("max")
    gaps = each((arguments.integers(4, "dilation") if is_max else None) or (1,), rank)
    whole = arguments.flag(5 if is_max else 4, "ceil_mode")
    plain = sizes == steps and not any(lows) and {*gaps} == {1} and not whole
    return Pooled(node.name, sizes) if plain else None
