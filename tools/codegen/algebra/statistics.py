"""Statistics made of other statistics: of a tensor's parts, and of a normalised value's input.

Of parts, where both are wanted: a batch's mean and variance are made of each image's, a group's of
each channel's. For parts of n elements with means m_i and variances v_i, the whole has the mean m
of the m_i and the variance mean (v_i + (m_i - m)^2). So a sum over space and a norm over space and
batch need one pass over the tensor instead of two. Not here: products, extrema, and parts of which
neither lies within the other.

Of a normalised value: sum (x - m) r w + b = (sum x - n m) r w + n b where m, r, w do not vary along
what is summed, and weighted sums else, as the value is affine in x. The sum of x is taken in the
pass that makes the statistics, so the pass that normalised every element to add it up goes. The
difference is taken of sums instead of elements, which rounds about alike.

Both hold for all finite inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod

from kernelwright.tools.codegen.algebra.sketch import Parts, Sketch, whole
from kernelwright.tools.codegen.algebra.sums import VIEWS, WIDE, Sum, Summing
from kernelwright.tools.codegen.lower.nests.context import Arguments, base
from kernelwright.tools.types import Graph, Node, Ref, Scalar

_STATISTICS = (
    *("aten.sum.default", "aten.sum.dim_IntList"),
    *("aten.var.correction", "aten.var_mean.correction"),
)
# Of shorter parts the statistics are no small tensor, and rows of them no good rows.
_SHORTEST = 16


@dataclass(frozen=True)
class Statistic:
    """A node that reduces `source`, a view of `root`, over some of its dimensions."""

    node: Node
    source: Ref
    root: str
    dims: frozenset[int]

    def inner(self, parts: Parts) -> frozenset[int]:
        """Which of the parts of its source it reduces."""
        return frozenset(at for dim in self.dims for at in parts.of(dim))


def statistics_of_parts(graph: Graph, node: Node) -> Graph | None:
    """The graph with a coarser statistic of the same tensor made of this node's own parts."""
    sketch = Sketch(graph)
    fine = statistic(sketch, node)
    if fine is None:
        return None
    for other in graph.nodes:
        coarse = statistic(sketch, other) if other.name != node.name else None
        if coarse is None or coarse.root != fine.root:
            continue
        parts = whole(sketch.shape(fine.source), tuple(fine.dims))
        shared = parts.viewed(sketch.shape(coarse.source))
        if shared is not None and _within(shared, coarse.inner(shared)):
            return _joined(sketch, fine, coarse, shared)
    return None


def statistic(sketch: Sketch, node: Node) -> Statistic | None:
    """The node as a statistic; None for any other node, and for a sum of something narrow."""
    if node.op not in _STATISTICS or any(out.dtype not in WIDE for out in node.out):
        return None
    arguments = Arguments(node)
    source = arguments.tensor(0)
    rank, like = len(sketch.shape(source)), sketch.node(source.node).out[0]
    if like.dtype is not node.out[0].dtype or arguments.ref(1) is not None:
        return None
    dims = frozenset(dim % rank for dim in arguments.integers(1, "dim") or range(rank))
    return Statistic(node, source, behind_views(sketch, source), dims) if rank else None


def behind_views(sketch: Sketch, source: Ref) -> str:
    """The node whose elements a tensor holds in the same order."""
    node = sketch.node(source.node)
    while base(node.op) in VIEWS and isinstance(node.args[0], Ref):
        node = sketch.node(node.args[0].node)
    return node.name


def _within(parts: Parts, coarse: frozenset[int]) -> bool:
    """Whether the fine parts are a true part of the coarse ones, and long enough."""
    count = prod(parts.flat[at] for at in parts.summed)
    return parts.summed < coarse and count >= _SHORTEST


def _joined(sketch: Sketch, fine: Statistic, coarse: Statistic, parts: Parts) -> Graph:
    x = sketch.view(Ref(node=fine.root), parts.flat)
    rest = sorted(coarse.inner(parts) - parts.summed)
    count = prod(parts.flat[at] for at in parts.summed)
    mine = Moments(sketch, count, sketch.total(x, sorted(parts.summed)))
    if base(coarse.node.op) != "sum":
        near = sketch.sub(x, _first(sketch, x, coarse.inner(parts)))
        mine = replace(mine, spread=sketch.moments(near, sorted(parts.summed)))
    elif base(fine.node.op) != "sum":
        mine = replace(mine, spread=sketch.moments(x, sorted(parts.summed)))
    groups = prod(parts.flat[at] for at in rest)
    whole = mine.together(rest, groups)
    return sketch.all_finished(mine.answers(fine.node) | whole.answers(coarse.node))


def _first(sketch: Sketch, x: Ref, dims: frozenset[int]) -> Ref:
    """The first element of what is reduced: distances from it keep the digits of its fellows."""
    for dim in sorted(dims):
        x = sketch.cut(x, dim, 0, 1)
    return x


@dataclass(frozen=True)
class Moments:
    """The sum of every part of `count` elements, and where it is wanted how they spread.

    `spread` is the variance and the mean of the elements' distances from a point that the parts
    of one whole share: of the means themselves the digits that tell them apart may be rounded off.
    """

    sketch: Sketch
    count: int
    total: Ref
    spread: tuple[Ref, Ref] | None = None

    def together(self, dims: list[int], groups: int) -> Moments:
        """All parts along some dimensions as one."""
        sketch, share = self.sketch, Scalar(value=1.0 / groups)
        whole = Moments(sketch, self.count * groups, sketch.total(self.total, dims))
        if self.spread is None:
            return whole
        variance, mean = self.spread
        middle = sketch.mul(sketch.total(mean, dims), share)
        apart = sketch.sub(mean, middle)
        variance = sketch.add(variance, sketch.mul(apart, apart))
        return replace(whole, spread=(sketch.mul(sketch.total(variance, dims), share), middle))

    def answers(self, node: Node) -> dict[str, Ref]:
        """What takes the place of a statistic: of a node of two results, of its readers."""
        sketch, name = self.sketch, base(node.op)
        if name == "sum" or self.spread is None:
            return {node.name: self.total}
        variance = self._corrected(Arguments(node).number(2, "correction", 1))
        if name == "var":
            return {node.name: variance}
        mean = sketch.mul(self.total, Scalar(value=1.0 / self.count))
        users = sketch.users(node.name)
        return {user.name: (variance, mean)[Arguments(user).integer(1)] for user in users}

    def _corrected(self, correction: float) -> Ref:
        assert self.spread is not None
        left = max(self.count - correction, 0.0)
        scale = self.count / left if left else inf
        return self.sketch.mul(self.spread[0], Scalar(value=scale))


_NORMALISED_STATISTICS = ("var_mean", "var", "std", "std_mean")


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
    return [user for user in sketch.users(node.name) if base(user.op) in _NORMALISED_STATISTICS]


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
