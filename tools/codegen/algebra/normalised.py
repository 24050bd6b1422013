"""Sums of a normalised value, made of the sums that its statistics need anyway.

sum (x - m) r w + b = (sum x - n m) r w + n b where m, r, w do not vary along what is summed, and
weighted sums else: the value is affine in x. The sum of x is taken in the pass that makes the
statistics, so the pass that normalised every element to add it up goes. Holds for all finite
inputs; the difference is taken of sums instead of elements, which rounds about alike.
"""

from __future__ import annotations

from kernelwright.tools.codegen.algebra.grouped import statistic
from kernelwright.tools.codegen.algebra.parts import whole
from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.algebra.summing import VIEWS, WIDE, Sum, Summing
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.types import Graph, Node, Ref

_STATISTICS = ("var_mean", "var", "std", "std_mean")


def sum_after_norm(graph: Graph, node: Node) -> Graph | None:
    """The graph with one sum over a normalised value made of sums of what was normalised.

    Where others read the normalised value too it is made anyway; then this pays only if the
    statistics are taken along more than what is summed (`grouped` makes both of one pass).
    """
    if base(node.op) != "sum" or node.out[0].dtype not in WIDE:
        return None
    sketch, arguments = Sketch(graph), Arguments(node)
    source = arguments.tensor(0)
    shape = sketch.shape(source)
    parts = whole(shape, arguments.integers(1, "dim") or range(len(shape)))
    if not parts.summed or _plain(sketch, source):
        return None
    if sketch.alone(source.node):
        result = Summing(sketch, _measured).of(source, Sum(parts))
    else:
        result = Summing(sketch, _inside).through(sketch.node(source.node), Sum(parts))
    return None if result is None else sketch.finished(node.name, result)


def _plain(sketch: Sketch, source: Ref) -> bool:
    """Whether nothing but views lies between a value and what statistics are taken of."""
    node = sketch.node(source.node)
    while not _statistics(sketch, node):
        if base(node.op) not in VIEWS or not isinstance(node.args[0], Ref):
            return False
        node = sketch.node(node.args[0].node)
    return True


def _statistics(sketch: Sketch, node: Node) -> list[Node]:
    return [user for user in sketch.users(node.name) if base(user.op) in _STATISTICS]


def _measured(sketch: Sketch, node: Node, wanted: Sum) -> Ref | None:
    """The sum of something whose statistics are taken too."""
    if not _statistics(sketch, node):
        return None
    parts = wanted.parts
    x = sketch.view(Ref(node=node.name), parts.flat)
    if wanted.weight is not None:
        x = sketch.mul(x, wanted.weight)
    return sketch.total(x, sorted(parts.summed))


def _inside(sketch: Sketch, node: Node, wanted: Sum) -> Ref | None:
    """The same where the statistics are those of many such sums together."""
    if wanted.weight is not None:
        return None
    coarse = [statistic(sketch, user) for user in _statistics(sketch, node)]
    parts = wanted.parts
    within = any(found is not None and parts.summed < found.inner(parts) for found in coarse)
    return _measured(sketch, node, wanted) if within else None
