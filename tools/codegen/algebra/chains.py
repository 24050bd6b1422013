"""Products of products, multiplied in the order that costs least.

(x A + b) B + c = x (A B) + (b B + c): matrix products are associative and distribute over sums.
With x of m rows, A of k by n and B of n by p, the first order costs m n (k + p) multiplications and
the second k p (n + m); the second pays where m is large and n is not small. Holds for all finite
inputs; roundings differ.
"""

from __future__ import annotations

from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.algebra.summing import WIDE
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.types import Graph, Node, Ref

_VIEWS = ("view", "_unsafe_view", "reshape")


def regroup_products(graph: Graph, node: Node) -> Graph | None:
    """The graph with one product of a product multiplied in the other order."""
    if base(node.op) not in ("mm", "addmm") or node.kwargs or node.out[0].dtype not in WIDE:
        return None
    sketch = Sketch(graph)
    first, second = _factors(node)
    inner = _product_behind(sketch, first)
    if inner is None:
        return None
    x, between = _factors(inner)
    (m, k), n, p = sketch.shape(x), sketch.shape(between)[1], node.out[0].shape[1]
    if k * p * (n + m) >= m * n * (k + p):
        return None
    result = sketch.product(x, sketch.product(between, second))
    shift = _bias(inner)
    if shift is not None:
        rows = sketch.view(shift, (1, *sketch.shape(shift))[-2:])
        result = sketch.add(result, sketch.product(rows, second))
    outer = _bias(node)
    return sketch.finished(node.name, result if outer is None else sketch.add(result, outer))


def _factors(node: Node) -> tuple[Ref, Ref]:
    arguments, first = Arguments(node), len(node.args) - 2
    return arguments.tensor(first), arguments.tensor(first + 1)


def _bias(node: Node) -> Ref | None:
    return Arguments(node).ref(0) if base(node.op) == "addmm" else None


def _product_behind(sketch: Sketch, factor: Ref) -> Node | None:
    """The product that a factor is, views that give its shape back allowed."""
    shape, node = sketch.shape(factor), sketch.node(factor.node)
    while sketch.alone(node.name) and base(node.op) in _VIEWS and isinstance(node.args[0], Ref):
        node = sketch.node(node.args[0].node)
    same = node.out[0].shape == shape and base(node.op) in ("mm", "addmm") and not node.kwargs
    return node if same and sketch.alone(node.name) else None
