"""An average pool over the outputs of a linear map pools its weight instead.

mean over a window J of (x W + b)_j = x (mean over J of W_j) + mean over J of b_j: the average is
linear. Strides and overlapping windows are the same on both sides; windows that reach into
padding are left alone. Holds for all finite inputs; the order of additions changes.
"""

from __future__ import annotations

from math import prod

from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.algebra.summing import WIDE
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.types import Graph, Node, Ref

_POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
_VIEWS = ("view", "_unsafe_view", "unsqueeze", "squeeze", "reshape")


def pool_after_linear_map(graph: Graph, node: Node) -> Graph | None:
    """The graph with one pool over a product's outputs made one over its weight."""
    if base(node.op) not in _POOLS or node.out[0].dtype not in WIDE or not _plain(node):
        return None
    sketch = Sketch(graph)
    source = node.args[0]
    if not isinstance(source, Ref):
        return None
    shape = sketch.shape(source)
    made = _product_behind(sketch, source)
    if made is None or prod(shape[:-1]) != made.out[0].shape[0] or prod(shape[1:-1]) != 1:
        return None
    x, weight = (Arguments(made).tensor(len(made.args) - 2 + at) for at in (0, 1))
    bias = Arguments(made).ref(0) if base(made.op) == "addmm" else None
    pooled = _pooled(sketch, node, weight)
    if bias is not None:
        bias = _pooled(sketch, node, sketch.view(bias, (1, *sketch.shape(bias))[-2:]))
    return sketch.finished(node.name, sketch.product(x, pooled, bias))


def _plain(node: Node) -> bool:
    """Whether nothing is padded, and windows lie along the last dimension only."""
    arguments = Arguments(node)
    window = arguments.integers(1) or ()
    padding = arguments.integers(3) or ()
    alone = all(size == 1 for size in window[:-1])
    uneven = arguments.flag(4) or arguments.scalar(6) is not None
    return alone and not any(padding) and not uneven and not node.kwargs


def _product_behind(sketch: Sketch, source: Ref) -> Node | None:
    """The product that a value is a view of, if nobody else reads it."""
    node = sketch.node(source.node)
    while sketch.alone(node.name) and base(node.op) in _VIEWS and isinstance(node.args[0], Ref):
        node = sketch.node(node.args[0].node)
    made = base(node.op) in ("mm", "addmm") and sketch.alone(node.name) and not node.kwargs
    return node if made else None


def _pooled(sketch: Sketch, node: Node, matrix: Ref) -> Ref:
    """The pool of every row of a matrix."""
    rows, columns = sketch.shape(matrix)
    rank, out = len(node.out[0].shape), node.out[0].shape[-1]
    lifted = sketch.view(matrix, (rows, *[1] * (rank - 2), columns))
    op = node.op.removeprefix("aten.")
    shape = (rows, *[1] * (rank - 2), out)
    return sketch.view(sketch.call(op, (lifted, *node.args[1:]), shape), (rows, out))
