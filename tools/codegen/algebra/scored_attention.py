"""Finds attention of which scores are changed as no library's call says, and makes it one node.

Between the product of queries and keys and the one with values may stand any pointwise functions: a
soft cap, a bias that is computed from positions (ALiBi, distances, windows), ReLU or a sigmoid in
place of a softmax. They stay nodes of the graph, of a tensor that nobody makes: `SCORES` stands for
the products, and `ATTENTION` takes what the chain made of them. A library's call whose mask is
computed in the forward is one of these too, so that the mask need not be stored.

What is made can be lowered (`lower.scored`), and only kernels of ours compute it: there
is no call that a plan could fall back on. So these rewrites make a form of their own.

Not here: weights that are changed after the softmax, scores that are read at other places than
their own, two products in one sum (one of them is read as a bias).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from kernelwright.tools.codegen.algebra.attention import (
    HALF_KERNELS,
    SINGLE_KERNELS,
    Kernels,
    softmax_of,
    turned_keys,
)
from kernelwright.tools.codegen.algebra.attention_masks import constant
from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch, leaf
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.codegen.ir.scores import ATTENTION, SCORES
from kernelwright.tools.codegen.lower.nests.context import base
from kernelwright.tools.codegen.lower.operators.pointwise import POINTWISE
from kernelwright.tools.codegen.lower.operators.shapes import SHAPES
from kernelwright.tools.types import Arg, DType, Graph, ListArg, Node, Ref, Scalar, TensorSpec
from kernelwright.tools.types.graph import refs

_PRODUCTS = ("bmm", "mm")
_CALL = "scaled_dot_product_attention"
# A longer way from the weights back to the product is no pointwise function any more.
_MOST_NODES = 64


@dataclass(frozen=True)
class _Chain:
    """The product, and the nodes between it and what is made of it, in the graph's order."""

    product: Node
    nodes: tuple[Node, ...]


def scored_attention(kernels: Kernels, graph: Graph, node: Node) -> Graph | None:
    """The graph with one attention, and all that changes its scores, made one node."""
    if node.out[0].dtype not in kernels.types:
        return None
    if base(node.op) == _CALL:
        return _with_computed_mask(kernels, graph, node)
    if base(node.op) not in _PRODUCTS or node.kwargs:
        return None
    sketch = Sketch(graph)
    weights, values = node.args
    if not isinstance(weights, Ref) or not isinstance(values, Ref):
        return None
    softmax = softmax_of(sketch, weights)
    chain = _chain(sketch, softmax or weights)
    if chain is None:
        return None
    made = _copied(sketch, chain, softmax or weights)
    outer = _outer(sketch, softmax or weights, chain)
    queries, keys = chain.product.args[:2]
    if outer is None or not isinstance(queries, Ref) or not isinstance(keys, Ref):
        return None
    given = [queries, turned_keys(sketch, keys), values]
    if not _fits(sketch, kernels, given):
        return None
    given = [sketch.view(one, (*outer, *sketch.shape(one)[-2:])) for one in given]
    made = sketch.view(made, (*outer, *node.out[0].shape[-2:-1], sketch.shape(values)[-2]))
    shape = (*outer, *node.out[0].shape[-2:])
    result = _attention(sketch, given, made, shape, is_softmax=softmax is not None)
    changed = sketch.finished(node.name, result)
    # Scores that something else reads are computed anyway, and then nothing is gained.
    return None if chain.product.name in {one.name for one in changed.nodes} else changed


def _attention(
    sketch: Sketch, given: Sequence[Ref], made: Ref, shape: Shape, *, is_softmax: bool
) -> Ref:
    """The node: queries, keys, values, and what was made of scores."""
    spec = TensorSpec(shape=shape, dtype=sketch.node(given[0].node).out[0].dtype)
    node = Node(name="", op=ATTENTION, args=(), out=(spec,))
    return sketch.like(node, (*given, made, Scalar(value=is_softmax)), ())


def _fits(sketch: Sketch, kernels: Kernels, given: Sequence[Ref]) -> bool:
    """Whether kernels take tensors of these types and widths."""
    widths = [sketch.shape(one)[-1] for one in given]
    kinds = {sketch.node(one.node).out[0].dtype for one in given}
    return len(kinds) == 1 and kinds <= {*kernels.types} and kernels.take(widths)


def _chain(sketch: Sketch, made: Ref) -> _Chain | None:
    """The pointwise way from a product of queries and keys to what is made of it."""
    size = prod(sketch.shape(made))
    between: list[str] = []
    product: Node | None = None
    waiting, seen = [made.node], set[str]()
    while waiting:
        node = sketch.node(waiting.pop())
        if node.name in seen:
            continue
        seen.add(node.name)
        if base(node.op) in _PRODUCTS:
            is_first = product is None and node.out[0].numel == size and not node.kwargs
            product = node if is_first else product
        elif _is_pointwise(node):
            between.append(node.name)
            waiting += refs(node)
        if len(between) > _MOST_NODES:
            return None
    if product is None or base(product.op) not in _PRODUCTS:
        return None
    return _Chain(product, tuple(_dependent(sketch, product, between)))


def _is_pointwise(node: Node) -> bool:
    return not leaf(node) and base(node.op) in (*POINTWISE, *SHAPES)


def _dependent(sketch: Sketch, product: Node, names: Sequence[str]) -> list[Node]:
    """Of some nodes those that are made from the product, in the graph's order."""
    found, wanted = {product.name}, set(names)
    nodes: list[Node] = []
    for node in sketch.graph.nodes:
        if node.name in wanted and found & set(refs(node)):
            found.add(node.name)
            nodes.append(node)
    return nodes


def _copied(sketch: Sketch, chain: _Chain, made: Ref) -> Ref:
    """The chain once more, on what stands for the product."""
    names = {chain.product.name: _scores(sketch, chain.product.out[0].shape)}
    for node in chain.nodes:
        args = tuple(_renamed(arg, names) for arg in node.args)
        named = tuple((key, _renamed(arg, names)) for key, arg in node.kwargs)
        names[node.name] = sketch.like(node, args, named)
    return names[made.node]


def _renamed(arg: Arg, names: dict[str, Ref]) -> Arg:
    if isinstance(arg, ListArg):
        return ListArg(items=tuple(_renamed(item, names) for item in arg.items))
    return names.get(arg.node, arg) if isinstance(arg, Ref) else arg


def _scores(sketch: Sketch, shape: Shape) -> Ref:
    """A tensor in float32 that stands for a product, as no kernel rounds it."""
    spec = TensorSpec(shape=shape, dtype=DType.FLOAT32)
    return sketch.like(Node(name="", op=SCORES, args=(), out=(spec,)), (), ())


def _outer(sketch: Sketch, made: Ref, chain: _Chain) -> Shape | None:
    """Batches and heads of scores, as they are viewed last; None where sides were moved."""
    shape, product = sketch.shape(made), chain.product.out[0].shape
    return shape[:-2] if len(shape) > 1 and shape[-2:] == product[-2:] else None


def _with_computed_mask(kernels: Kernels, graph: Graph, node: Node) -> Graph | None:
    """The graph with one call whose mask is computed in the forward made a node."""
    sketch = Sketch(graph)
    named = dict(node.kwargs)
    given = [*node.args, *(Scalar(value=None),) * (6 - len(node.args))]
    queries, keys, values, mask, dropout, is_causal = given[:6]
    if not all(isinstance(one, Ref) for one in (queries, keys, values, mask)):
        return None
    tensors = [one for one in (queries, keys, values) if isinstance(one, Ref)]
    drops = isinstance(dropout, Scalar) and bool(dropout.value)
    causal = isinstance(is_causal, Scalar) and bool(is_causal.value)
    if drops or causal or not isinstance(mask, Ref) or not _is_computed(sketch, mask):
        return None
    if not _fits(sketch, kernels, tensors):
        return None
    scale = named.get("scale")
    width = sketch.shape(tensors[0])[-1]
    factor = scale.value if isinstance(scale, Scalar) and scale.value else width**-0.5
    shape = (*node.out[0].shape[:-1], sketch.shape(tensors[1])[-2])
    scores = sketch.mul(_scores(sketch, shape), Scalar(value=factor))
    made = _masked(sketch, scores, mask)
    result = _attention(sketch, tensors, made, node.out[0].shape, is_softmax=True)
    return sketch.finished(node.name, result)


def _is_computed(sketch: Sketch, mask: Ref) -> bool:
    """Whether a forward computes it, other than as a constant or by views of what is given."""
    node = sketch.node(mask.node)
    while base(node.op) in SHAPES and isinstance(node.args[0], Ref):
        node = sketch.node(node.args[0].node)
    if constant(sketch, mask) is not None:
        return False
    return not leaf(node) and (base(node.op) in POINTWISE or base(node.op) in ("index", "gather"))


def _masked(sketch: Sketch, scores: Ref, mask: Ref) -> Ref:
    if sketch.node(mask.node).out[0].dtype is not DType.BOOL:
        return sketch.add(scores, mask)
    nothing = sketch.view(sketch.full(scores.node, 1, float("-inf")), ())
    return sketch.where(mask, scores, nothing)


_CONDITIONS = "no row is masked out altogether; nothing else reads scores or weights; finite inputs"
_PROOF = (
    "each score is changed by itself, so what is done to it may be done where it is made; a "
    "softmax and both products are grouped as in any attention"
)
SCORED_ATTENTION = GraphRewrite(
    name="scored_attention",
    title="attention with its own score function in one kernel",
    proof=_PROOF,
    conditions=f"half types; {_CONDITIONS}",
    change=partial(scored_attention, HALF_KERNELS),
    is_apart=True,
)
SCORED_SINGLE_ATTENTION = replace(
    SCORED_ATTENTION,
    name="scored_single_attention",
    conditions=f"float32; {_CONDITIONS}",
    change=partial(scored_attention, SINGLE_KERNELS),
    architectures=("sm_90a",),
)
