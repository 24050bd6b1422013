"""Sums over the outputs of matrix products and convolutions.

sum_n (x W)_mn = sum_n sum_k x_mk W_kn = sum_k x_mk (sum_n W_kn): a finite double sum may be taken
in either order, so the product shrinks to one with the summed weight. The same holds for rows, for
groups of outputs (a view of them) and for sums weighted per output. A convolution is linear in
its input, its weight and its bias alike, so sums over its output channels sum its weight, and sums
over the batch sum its input. Holds for all finite inputs; the order of additions changes.
"""

from __future__ import annotations

from math import prod

from kernelwright.tools.codegen.algebra.parts import whole
from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.algebra.space import summed_over_space
from kernelwright.tools.codegen.algebra.summing import WIDE, Sum, Summing
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.types import Graph, Node, Ref, Scalar


def sum_after_linear_map(graph: Graph, node: Node) -> Graph | None:
    """The graph with one sum over the outputs of a contraction made of the summed weight."""
    if base(node.op) != "sum" or node.out[0].dtype not in WIDE:
        return None
    sketch, arguments = Sketch(graph), Arguments(node)
    source = arguments.tensor(0)
    shape = sketch.shape(source)
    if sketch.node(source.node).out[0].dtype is not node.out[0].dtype or not sketch.alone(
        source.node
    ):
        return None
    parts = whole(shape, arguments.integers(1, "dim") or range(len(shape)))
    result = Summing(sketch, contracted).of(source, Sum(parts)) if parts.summed else None
    return None if result is None else sketch.finished(node.name, result)


def contracted(sketch: Sketch, node: Node, wanted: Sum) -> Ref | None:
    """The sum of a contraction's output, made of summed factors."""
    if not sketch.alone(node.name) or node.kwargs:
        return None
    name = base(node.op)
    if name in ("mm", "addmm"):
        return _product(sketch, node, wanted)
    return _convolution(sketch, node, wanted) if name == "convolution" else None


def _product(sketch: Sketch, node: Node, wanted: Sum) -> Ref | None:
    a, b = (Arguments(node).tensor(at - 2) for at in (len(node.args), len(node.args) + 1))
    parts = wanted.parts
    rows, columns = parts.of(0), parts.of(1)
    weight = wanted.weight
    if weight is not None:
        if any(sketch.shape(weight)[at] > 1 for at in rows):
            return None
        only = [sketch.shape(weight)[at] for at in columns]
        b_weight = sketch.view(weight, [1, *only])
    inside = sketch.shape(a)[1]
    b = sketch.view(b, [inside, *parts.dims[1]])
    if weight is not None:
        b = sketch.mul(b, b_weight)
    b = sketch.total(b, [1 + at - columns.start for at in columns if at in parts.summed])
    a = sketch.total(sketch.view(a, [*parts.dims[0], inside]), sorted(parts.summed & {*rows}))
    b = sketch.view(b, [inside, prod(sketch.shape(b)[1:])])
    a = sketch.view(a, [prod(sketch.shape(a)[:-1]), inside])
    result = sketch.view(sketch.product(a, b), parts.kept)
    return result if base(node.op) == "mm" else _with(sketch, result, node.args[0], wanted)


def _with(sketch: Sketch, result: Ref, bias: object, wanted: Sum) -> Ref | None:
    """The result and the sum of a bias of the outputs' shape."""
    if not isinstance(bias, Ref):
        return None
    added = Summing(sketch, contracted).plain(bias, wanted)
    return sketch.add(result, added) if isinstance(added, Ref) else None


def _convolution(sketch: Sketch, node: Node, wanted: Sum) -> Ref | None:
    parts, arguments = wanted.parts, Arguments(node)
    space = range(2, len(parts.dims))
    if wanted.weight is not None or arguments.integer(8, "groups") != 1:
        return None
    if space and all(parts.all_summed(dim) for dim in space):
        result = summed_over_space(sketch, node, parts)
    elif all(parts.none_summed(dim) for dim in space):
        result = _over_channels(sketch, node, wanted)
    else:
        return None
    bias = arguments.ref(2)
    if result is None or bias is None:
        return result
    lifted = sketch.view(bias, [*sketch.shape(bias), *[1 for _ in space]])
    return _with(sketch, result, lifted, wanted)


def _over_channels(sketch: Sketch, node: Node, wanted: Sum) -> Ref:
    """A convolution with the weight summed over output channels, of the input over the batch."""
    parts, arguments = wanted.parts, Arguments(node)
    x, weight = arguments.tensor(0), arguments.tensor(1)
    batch, channels = parts.of(0), parts.of(1)
    x_shape, w_shape = sketch.shape(x), sketch.shape(weight)
    x = sketch.total(
        sketch.view(x, [*parts.dims[0], *x_shape[1:]]), sorted(parts.summed & {*batch})
    )
    x = sketch.view(x, [prod(sketch.shape(x)[: len(batch)]), *x_shape[1:]])
    at = 1 if arguments.flag(6) else 0
    dims = [at + part - channels.start for part in channels if part in parts.summed]
    split = sketch.view(weight, [*w_shape[:at], *parts.dims[1], *w_shape[at + 1 :]])
    summed = sketch.total(split, dims)
    out = prod(parts.kept[part] for part in channels)
    weight = sketch.view(summed, [*w_shape[:at], out, *w_shape[at + 1 :]])
    args = (x, weight, Scalar(value=None), *node.args[3:])
    shape = (sketch.shape(x)[0], out, *node.out[0].shape[2:])
    return sketch.view(sketch.call("convolution.default", args, shape), parts.kept)
