"""Sums of a normalised value, made of the sums that its statistics need anyway.

sum (x - m) r w + b = (sum x - n m) r w + n b where m, r, w do not vary along what is summed, and
weighted sums else: the value is affine in x. The sum of x is taken in the pass that makes the
statistics, so the pass that normalised every element to add it up goes. Holds for all finite
inputs; the difference is taken of sums instead of elements, which rounds about alike.
"""

from __future__ import annotations

from agents.playbook.algebra.parts import whole
from agents.playbook.algebra.sketch import Sketch
from agents.playbook.algebra.summing import WIDE, Sum, Summing
from agents.playbook.lower.arguments import Arguments, base
from tools.nouns import Graph, Node, Ref

_STATISTICS = ("var_mean", "var", "std", "std_mean")


def sum_after_norm(graph: Graph, node: Node) -> Graph | None:
    """The graph with one sum over a normalised value made of sums of what was normalised."""
    if base(node.op) != "sum" or node.out[0].dtype not in WIDE:
        return None
    sketch, arguments = Sketch(graph), Arguments(node)
    source = arguments.tensor(0)
    shape = sketch.shape(source)
    if not sketch.alone(source.node):
        return None
    parts = whole(shape, arguments.integers(1, "dim") or range(len(shape)))
    result = Summing(sketch, _measured).of(source, Sum(parts)) if parts.summed else None
    return None if result is None else sketch.finished(node.name, result)


def _measured(sketch: Sketch, node: Node, wanted: Sum) -> Ref | None:
    """The sum of something whose statistics are taken too."""
    if not any(base(user.op) in _STATISTICS for user in sketch.users(node.name)):
        return None
    parts = wanted.parts
    x = sketch.view(Ref(node=node.name), parts.flat)
    if wanted.weight is not None:
        x = sketch.mul(x, wanted.weight)
    return sketch.total(x, sorted(parts.summed))
