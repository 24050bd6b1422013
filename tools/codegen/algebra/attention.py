"""Finds attention that a module writes out, and makes one call of it.

A product with weights that are a softmax of scaled and masked products is what the operator
`scaled_dot_product_attention` computes. What stands between may be views, casts and copies that
change nothing, factors, masks that are filled in or added, and a mask of positions alone that keeps
what lies up to the diagonal, which becomes a causal call.

It is looked for where kernels exist that keep scores on chip: in half types, where scores that are
not rounded in between are closer to the truth too, and in float32 on the devices that have one. Not
here: scores that are changed otherwise, weights that are returned or dropped at random, biases of
another type than the queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from kernelwright.tools.codegen.algebra.attention_masks import (
    Mask,
    Scores,
    behind,
    constant,
    lifted,
    masking,
    only_moves,
)
from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.codegen.lower.nests.context import Arguments, base
from kernelwright.tools.types import Arg, DType, Graph, Node, Ref, Scalar

# Rows of whole 16 bytes of a half type.
_PIECE = 8


@dataclass(frozen=True)
class Kernels:
    """What kernels take: types, and heads whose results stay in registers.

    `negligible` is a number that is filled in and leaves no weight beside any score of usual size.
    """

    types: tuple[DType, ...]
    widest: int
    negligible: float

    def take(self, widths: Sequence[int]) -> bool:
        """Whether heads of these widths are rows of whole 16 bytes, and not too wide."""
        return all(width % _PIECE == 0 and width <= self.widest for width in widths)


HALF_KERNELS = Kernels((DType.FLOAT16, DType.BFLOAT16), widest=256, negligible=-1e4)
SINGLE_KERNELS = Kernels((DType.FLOAT32,), widest=128, negligible=-1e8)


def written_attention(kernels: Kernels, graph: Graph, node: Node) -> Graph | None:
    """The graph with one product of weights and values, and all behind it, made one call."""
    if base(node.op) not in ("bmm", "mm") or node.kwargs:
        return None
    if node.out[0].dtype not in kernels.types:
        return None
    sketch = Sketch(graph)
    weights, values = node.args
    scores = softmax_of(sketch, weights)
    found = None if scores is None else _scores(sketch, scores, kernels.negligible)
    if found is None or not isinstance(values, Ref) or _widest(sketch, found, values, kernels):
        return None
    result = _called(sketch, found, values, node)
    if result is None:
        return None
    changed = sketch.finished(node.name, result)
    # Scores that something else reads are computed anyway, and then nothing is gained.
    left = {one.name for one in changed.nodes}
    return None if found.product.name in left else changed


def _widest(sketch: Sketch, found: Scores, values: Ref, kernels: Kernels) -> bool:
    """Whether heads are too wide."""
    shapes = [sketch.shape(one) for one in (found.product.args[0], values) if isinstance(one, Ref)]
    return max(shape[-1] for shape in shapes) > kernels.widest


def softmax_of(sketch: Sketch, weights: Arg) -> Ref | None:
    """What a softmax of rows is taken of, as it stands after decomposition."""
    quotient = behind(sketch, weights)
    powers, total = _pair(quotient, "div")
    power = _single(sketch, powers, "exp")
    scores, most = _pair(_node(sketch, power), "sub")
    if scores is None or most is None or power is None:
        return None
    if not _reduces(sketch, total, "sum", powers) or not _reduces(sketch, most, "amax", scores):
        return None
    return scores


def _node(sketch: Sketch, arg: Arg | None) -> Node | None:
    return sketch.node(arg.node) if isinstance(arg, Ref) else None


def _pair(node: Node | None, name: str) -> tuple[Ref | None, Ref | None]:
    """Both tensors of an operator of two."""
    if node is None or base(node.op) != name or node.kwargs or len(node.args) != 2:
        return None, None
    first, second = node.args
    if not isinstance(first, Ref) or not isinstance(second, Ref):
        return None, None
    return first, second


def _single(sketch: Sketch, arg: Ref | None, name: str) -> Ref | None:
    """The tensor that an operator of one reads."""
    node = _node(sketch, arg)
    if node is None or base(node.op) != name:
        return None
    return node.args[0] if isinstance(node.args[0], Ref) else None


def _reduces(sketch: Sketch, arg: Ref | None, name: str, source: Ref | None) -> bool:
    """Whether it is a reduction of the source's last dimension, which stays."""
    node = _node(sketch, arg)
    if node is None or source is None or base(node.op) != name or node.args[0] != source:
        return False
    shape = sketch.shape(source)
    dims = Arguments(node).integers(1, "dim") or ()
    kept = node.out[0].shape == (*shape[:-1], 1)
    return kept and [dim % len(shape) for dim in dims] == [len(shape) - 1]


def _scores(sketch: Sketch, scores: Ref, negligible: float) -> Scores | None:
    """What scores are made of, from the softmax back to the product."""
    shape, node = sketch.shape(scores), behind(sketch, scores)
    found: Scores | None = Scores(sketch.node(scores.node), shape, (shape,), negligible=negligible)
    while node is not None and found is not None and base(node.op) not in ("bmm", "mm"):
        at_scores = node.out[0].shape[-2:] == shape[-2:] and node.out[0].numel == prod(shape)
        found, source = _step(sketch, node, found) if at_scores else (None, scores)
        found = found.viewed(node.out[0].shape) if found is not None else None
        node = behind(sketch, source)
    if node is None or found is None or node.out[0].shape[-2:] != shape[-2:]:
        return None
    return replace(found, product=node)


def _step(sketch: Sketch, node: Node, after: Scores) -> tuple[Scores | None, Arg | None]:
    """One operator on scores: what it adds to what comes after it, and its source."""
    if node.kwargs or len(node.args) < 2:  # an input is made of nothing
        return None, None
    name, (first, *others) = base(node.op), node.args
    second = others[0]
    shape = node.out[0].shape
    if name in ("mul", "div"):
        number = constant(sketch, second)
        if number is None and name == "mul" and isinstance(first, Ref) and isinstance(second, Ref):
            return _scaled_rows(sketch, first, second, after, shape)
        if number is None or (name == "div" and number == 0) or not math.isfinite(number):
            return None, first
        factor = number if name == "mul" else 1.0 / number
        return replace(after, scale=after.scale * factor), first
    # A mask that is added, or filled in, before a factor would be multiplied as well.
    if after.scale != 1.0 or after.factors:
        return None, first
    if name == "add" and isinstance(first, Ref) and isinstance(second, Ref):
        return _added(sketch, first, second, after, shape)
    return _filled(sketch, node, after) if name == "where" else (None, first)


def _scaled_rows(
    sketch: Sketch, first: Ref, second: Ref, after: Scores, shape: Shape
) -> tuple[Scores | None, Arg]:
    """A product of float32 scores and a number for each head: of queries it is the same."""
    if not _leads_to_product(sketch, first):
        first, second = second, first
    factor = sketch.node(second.node).out[0]
    per_row = (1, 1, *factor.shape)[-2:] == (1, 1) or factor.shape[-1:] == (1,)
    is_single = factor.dtype is sketch.node(first.node).out[0].dtype is DType.FLOAT32
    if not per_row or not is_single or shape != after.shape:
        return None, first
    return replace(after, factors=(*after.factors, lifted(sketch, second, shape))), first


def _added(
    sketch: Sketch, first: Ref, second: Ref, after: Scores, shape: Shape
) -> tuple[Scores | None, Arg]:
    """A sum of scores and a bias, whichever comes first."""
    if _leads_to_product(sketch, second) and not _leads_to_product(sketch, first):
        first, second = second, first
    mask = _as_mask(sketch, second, after.negligible)
    if mask is not None:
        mask = replace(mask, condition=lifted(sketch, mask.condition, shape))
        return replace(after, masks=(*after.masks, mask)), first
    return replace(after, biases=(*after.biases, lifted(sketch, second, shape))), first


def _leads_to_product(sketch: Sketch, arg: Arg) -> bool:
    """Whether a tensor is a product, but for factors and fillings."""
    node = behind(sketch, arg)
    while node is not None and base(node.op) in ("mul", "div", "where"):
        given = node.args[1:] if base(node.op) == "where" else node.args[:1]
        tensors = [one for one in given if constant(sketch, one) is None]
        node = behind(sketch, tensors[0]) if tensors else None
    return node is not None and base(node.op) in ("bmm", "mm")


def _as_mask(sketch: Sketch, bias: Ref, negligible: float) -> Mask | None:
    """A bias that leaves no weight where a condition says so, and is zero elsewhere."""
    node = behind(sketch, bias)
    if node is None or base(node.op) != "where" or node.out[0].shape != sketch.shape(bias):
        return None
    condition, then, other = node.args
    first, second = constant(sketch, then), constant(sketch, other)
    if not isinstance(condition, Ref) or first is None or second is None:
        return None
    if {first, second} != {0.0, min(first, second)} or min(first, second) > negligible:
        return None
    return Mask(condition, keeps=first == 0.0)


def _filled(sketch: Sketch, node: Node, after: Scores) -> tuple[Scores | None, Arg]:
    """Scores that give way to a number where a condition says so."""
    condition, then, other = node.args
    for filled, source, keeps in ((then, other, False), (other, then, True)):
        number = constant(sketch, filled)
        if number is not None and number <= after.negligible and isinstance(condition, Ref):
            mask = Mask(lifted(sketch, condition, node.out[0].shape), keeps)
            return replace(after, masks=(*after.masks, mask)), source
    return None, then


def _called(sketch: Sketch, found: Scores, values: Ref, node: Node) -> Ref | None:
    """The call, on tensors with two dimensions of batches and heads."""
    queries, turned = found.product.args[:2]
    if not isinstance(queries, Ref) or not isinstance(turned, Ref) or found.product.kwargs:
        return None
    batch = _batch(found.shape)
    width = sketch.shape(queries)[-1]
    kinds = {sketch.node(one.node).out[0].dtype for one in (queries, turned, values)}
    if batch is None or kinds != {node.out[0].dtype}:
        return None
    if width % _PIECE or sketch.shape(values)[-1] % _PIECE:
        return None
    factors = (queries, turned_keys(sketch, turned), values)
    given = [sketch.view(one, (*batch, *sketch.shape(one)[-2:])) for one in factors]
    for factor in found.factors:
        given[0] = sketch.mul(given[0], lifted(sketch, factor, (*batch, 1, 1)))
    asked = masking(sketch, found, batch, node.out[0].dtype)
    if asked is None:
        return None
    mask, is_causal = asked
    shape = (*batch, *node.out[0].shape[-2:])
    flags = (Scalar(value=0.0), Scalar(value=is_causal))
    named = (("scale", Scalar(value=found.scale)),)
    name = "scaled_dot_product_attention.default"
    return sketch.call(name, (*given, mask, *flags), shape, named)


def turned_keys(sketch: Sketch, keys: Ref) -> Ref:
    """Keys with the last two dimensions swapped.

    Where they were cast as they are multiplied, they are cast as they lie instead: kernels want a
    key's elements beside each other.
    """
    node, sides = sketch.node(keys.node), sketch.shape(keys)[-2:]
    while only_moves(sketch, node) and base(node.op) not in ("permute", "_to_copy"):
        source = node.args[0]
        assert isinstance(source, Ref)
        if sketch.shape(source)[-2:] != sides:
            break
        node = sketch.node(source.node)
    if base(node.op) != "_to_copy" or not isinstance(node.args[0], Ref):
        return _swapped(sketch, keys)
    cast = sketch.cast(_swapped(sketch, node.args[0]), node.out[0].dtype)
    return sketch.view(cast, (*sketch.shape(keys)[:-2], *reversed(sides)))


def _swapped(sketch: Sketch, x: Ref) -> Ref:
    rank = len(sketch.shape(x))
    return sketch.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def _batch(shape: Shape) -> tuple[int, int] | None:
    """Batches and heads of scores; libraries want both."""
    outer = shape[:-2]
    if len(outer) > 2:
        return None
    lifted = (1, 1, *outer)[-2:]
    return lifted[0], lifted[1]


_CONDITIONS = (
    "no row is masked out altogether, masks fill in less than any score, nothing else reads scores "
    "or weights; finite inputs"
)
WRITTEN_ATTENTION = GraphRewrite(
    name="written_attention",
    title="attention in one call",
    proof="softmax(scale Q K^T + mask) V is what the call computes, with scores that are not "
    "rounded to the half type in between",
    conditions=f"half types; {_CONDITIONS}",
    change=partial(written_attention, HALF_KERNELS),
)
WRITTEN_SINGLE_ATTENTION = GraphRewrite(
    name="written_single_attention",
    title="attention in one call",
    proof="softmax(scale Q K^T + mask) V is what the call computes",
    conditions=f"float32; {_CONDITIONS}",
    change=partial(written_attention, SINGLE_KERNELS),
    architectures=("sm_90a",),
)
