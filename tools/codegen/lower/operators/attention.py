"""Attention as what it is made of: a product of matrices, a softmax of rows, and a product again.

Where a lowering asks for products of its own, attention in float32 is two of them. The library
multiplies it on ordinary cores there, and scores that go through memory cost less than tensor cores
gain, unless heads are narrow. In half types the library keeps scores on chip and multiplies on
tensor cores as well, so those stay calls, which families of kernels may take (`cuda.attention`).

On Hopper a family of kernels takes the call in float32 too: a form of its own leaves it one beside
products of ours (`library.forms.attention`).

A mask goes where scores are stored. A row that it leaves nothing of is zeros, as PyTorch's own are.

Not here: dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, Space, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Expr
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.indexing import position
from kernelwright.tools.codegen.lower.operators.reductions import REDUCTIONS, reduced
from kernelwright.tools.types import DType, Node, Ref, Scalar, TensorSpec

# Elements of the scores, which go through memory twice: 4 GiB of them.
MOST_SCORES = 1 << 30
# Of queries and values, together: what tensor cores gain on narrower heads the scores take again
# (by the roofline of an H200).
LEAST_WIDTHS = 128

# What is made of a sum, at its position.
Finish = Callable[[Space, Expr], Expr]


def _attention(context: Context, node: Node, arguments: Arguments) -> None:
    _understood(context, node, arguments)
    query, key, value = (
        _batched(node, context.value(arguments.tensor(at)), is_shared=at > 0) for at in range(3)
    )
    mask = _mask(context, node, arguments)
    scale = arguments.number(6, "scale", 1.0 / math.sqrt(query.shape[-1]))
    is_causal = arguments.flag(5, "is_causal")

    def scored(space: Space, total: Expr) -> Expr:
        total = context.ops("mul", total, scale)
        if mask is not None:
            total = _masked(context, space, total)
        return _until_now(context, space, total) if is_causal else total

    scores = _product(context, f"{node.name}_scores", query, key, scored, mask)
    weights = _softmax(context, f"{node.name}_weights", scores)
    if mask is not None:
        weights = _kept(context, f"{node.name}_kept", scores, weights)
    turned = views.permute(value, (0, 2, 1))
    made = _product(context, node.name, weights, turned, lambda space, total: total)
    result = views.reshape(made, node.out[0].shape)
    context.values[node.name] = (made if result is None else result,)


def _understood(context: Context, node: Node, arguments: Arguments) -> None:
    """Refuses what the library does differently, or better."""
    given = [context.value(arguments.tensor(at)) for at in range(3)]
    parts = context.lowering.products and not context.lowering.calls_attention
    if not parts or any(view.dtype is not DType.FLOAT32 for view in given):
        raise UnlikeError("attention stays with the library")
    if arguments.number(4, "dropout_p"):
        raise UnlikeError("attention with dropout")
    query, key, value = (view.shape for view in given)
    if math.prod(node.out[0].shape[:-1]) * key[-2] > MOST_SCORES:
        raise UnlikeError("attention of too many scores")
    if query[-1] + value[-1] < LEAST_WIDTHS:
        raise UnlikeError("attention of narrow heads")


def _batched(node: Node, view: View, *, is_shared: bool) -> View:
    """Matrices of one batch, broadcast to that of the result; heads may share keys and values."""
    batch = node.out[0].shape[:-2]
    heads = view.shape[-3] if len(view.dims) > 2 else 1
    if is_shared and batch and 1 < heads < batch[-1]:
        dims = list(view.dims)
        dims[-3] = (*dims[-3], views.Atom(batch[-1] // heads, 0))
        view = replace(view, dims=tuple(dims), chain=None)
    view = views.expand(view, (*batch, *view.shape[-2:]))
    found = views.reshape(view, (math.prod(batch), *view.shape[-2:]))
    if found is None:
        raise UnlikeError("batches of no stride")
    return found


def _mask(context: Context, node: Node, arguments: Arguments) -> View | None:
    """The mask over all pairs, broadcast."""
    given = arguments.ref(3, "attn_mask")
    if given is None:
        return None
    view, keys = context.value(given), context.value(arguments.tensor(1)).shape[-2]
    whole = views.expand(view, (*node.out[0].shape[:-1], keys))
    return _batched(node, whole, is_shared=False)


def _product(
    context: Context, name: str, left: View, right: View, finish: Finish, beside: View | None = None
) -> View:
    """Rows of the left times rows of the right, of every batch, in a buffer of their own.

    What is read beside each of them is the last address of the space that `finish` is given.
    """
    (batch, rows, depth), columns = left.shape, right.shape[1]
    shape = (batch, rows, columns, depth)
    read = [views.unsqueeze(left, 2), views.unsqueeze(right, 1)]
    read += [] if beside is None else [views.unsqueeze(beside, 3)]
    space = context.space(read, shape)
    factors = (context.load(where, DType.FLOAT32) for where in space.addresses[:2])
    outer, inner = space.names(range(3)), space.names([3])
    total = reduced(context, "sum", context.ops("mul", *factors), bool(inner))
    made = context.buffer(name, TensorSpec(shape=shape[:-1], dtype=DType.FLOAT32))
    context.add(Nest(outer, inner, (Write(space.at(made, range(3)), finish(space, total)),)))
    return made


def _masked(context: Context, space: Space, score: Expr) -> Expr:
    """A score that is kept, or that a bias is added to."""
    where = space.addresses[2]
    if where.dtype is not DType.BOOL:
        return context.ops("add", score, context.load(where, DType.FLOAT32))
    nothing = context.pool.const(-math.inf, score.dtype)
    return context.ops("where", context.load(where, DType.BOOL), score, nothing)


def _kept(context: Context, name: str, scores: View, weights: View) -> View:
    """Weights that are zero where nothing of a score is left."""
    space = context.space([scores, weights], scores.shape)
    score, weight = (context.load(where, DType.FLOAT32) for where in space.addresses)
    is_empty = context.ops("eq", score, context.pool.const(-math.inf, score.dtype))
    value = context.ops("where", is_empty, context.pool.const(0.0, weight.dtype), weight)
    made = context.buffer(name, TensorSpec(shape=scores.shape, dtype=DType.FLOAT32))
    context.add(Nest(space.names(), (), (Write(space.at(made), value),)))
    return made


def _until_now(context: Context, space: Space, score: Expr) -> Expr:
    """A row's scores up to its own column; nothing of what comes later."""
    row, column = (position(context, space, at) for at in (1, 2))
    nothing = context.pool.const(-math.inf, score.dtype)
    return context.ops("where", context.ops("le", column, row), score, nothing)


def _softmax(context: Context, name: str, scores: View) -> View:
    """Over the last dimension, as the operator does it."""
    context.values[scores.buffer] = (scores,)
    spec = TensorSpec(shape=scores.shape, dtype=scores.dtype)
    args = (Ref(node=scores.buffer), Scalar(value=-1), Scalar(value=False))
    node = Node(name=name, op="aten._softmax.default", args=args, out=(spec,))
    REDUCTIONS["_softmax"](context, node, Arguments(node))
    return context.value(Ref(node=name))


ATTENTION: Mapping[str, Callable[[Context, Node, Arguments], None]] = {
    "scaled_dot_product_attention": _attention,
}
