"""Folds scales, shifts and average pools behind a product or a convolution into its weight.

Scales and shifts: (x W + b) s + t = x (W s) + (b s + t) for s and t that vary along the outputs
only; with statistics that are given, as a batch norm's in evaluation, this folds the norm away.
Statistics of the batch itself depend on the outputs and cannot be folded. It pays only where the
scaled value goes on as it is (it is returned, or read by another product): otherwise its pass is
there anyway. The scaled weight is made in every call.

Average pools: mean over a window J of (x W + b)_j = x (mean over J of W_j) + mean over J of b_j, as
the average is linear. Strides and overlapping windows are the same on both sides; windows that
reach into padding are left alone.

Both hold for all finite inputs; roundings and the order of additions differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch
from kernelwright.tools.codegen.algebra.sums import WIDE
from kernelwright.tools.codegen.lower.nests.context import Arguments, base
from kernelwright.tools.types import Arg, Graph, Node, Ref, Scalar

_CONTRACTIONS = ("mm", "addmm", "convolution")
_STEPS = ("mul", "div", "add", "sub", "neg")


@dataclass(frozen=True)
class Affine:
    """y * scale + shift; None for 1 and for 0."""

    scale: Arg | None = None
    shift: Arg | None = None


def fold_into_weights(graph: Graph, node: Node) -> Graph | None:
    """The graph with the scales and shifts that end in `node` folded into the contraction."""
    if base(node.op) not in _STEPS or node.out[0].dtype not in WIDE or not _ends(graph, node):
        return None
    sketch = Sketch(graph)
    steps: list[tuple[Node, int]] = []
    at = node
    while base(at.op) in _STEPS and not at.kwargs:
        side = _carrier(sketch, at)
        if side is None:
            return None
        steps.append((at, side))
        source = at.args[side]
        if not isinstance(source, Ref) or not sketch.alone(source.node):
            return None
        at = sketch.node(source.node)
    if base(at.op) not in _CONTRACTIONS or at.kwargs or not steps:
        return None
    return _folded(sketch, at, list(reversed(steps)), node)


def _ends(graph: Graph, node: Node) -> bool:
    """Whether the value goes on as it is: to the outputs or to another contraction."""
    readers = Sketch(graph).users(node.name)
    return all(base(reader.op) in _CONTRACTIONS for reader in readers)


def _carrier(sketch: Sketch, node: Node) -> int | None:
    """Which argument is the value; the other must vary along the outputs only."""
    for side, arg in enumerate(node.args[:2]):
        if not isinstance(arg, Ref) or sketch.shape(arg) != node.out[0].shape:
            continue
        others = [other for at, other in enumerate(node.args[:2]) if at != side]
        if base(node.op) == "div" and side == 1:
            continue
        if all(_along_outputs(sketch, other, node.out[0].shape) for other in others):
            return side
    return None


def _along_outputs(sketch: Sketch, arg: Arg, shape: Shape) -> bool:
    if not isinstance(arg, Ref):
        return isinstance(arg, Scalar)
    given = sketch.shape(arg)
    given = (1,) * (len(shape) - len(given)) + given
    return all(size == 1 for at, size in enumerate(given) if at != 1)


def _folded(sketch: Sketch, made: Node, steps: list[tuple[Node, int]], end: Node) -> Graph | None:
    if base(made.op) == "convolution" and Arguments(made).flag(6):
        return None  # a transposed convolution's groups lie along the other dimension
    found = Affine()
    for step, side in steps:
        others = [_flat(sketch, arg) for at, arg in enumerate(step.args[:2]) if at != side]
        found = _after(sketch, found, base(step.op), others[0] if others else None, side)
    out = made.out[0].shape[1]
    bias = _bias(sketch, made, found, out)
    x, weight, rest = _parts(sketch, made)
    weight = _scaled(sketch, weight, found.scale, convolution=bool(rest))
    shape = made.out[0].shape
    if rest:
        args = (x, weight, bias or Scalar(value=None), *rest)
        return sketch.finished(end.name, sketch.call("convolution.default", args, shape))
    return sketch.finished(end.name, sketch.product(x, weight, bias))


def _flat(sketch: Sketch, arg: Arg) -> Arg:
    """An operand as a vector over the outputs, or as a number."""
    return sketch.view(arg, [prod(sketch.shape(arg))]) if isinstance(arg, Ref) else arg


def _after(sketch: Sketch, y: Affine, name: str, by: Arg | None, side: int) -> Affine:
    """The affine map with one more step behind it."""
    if name == "neg":
        return _times(sketch, y, Scalar(value=-1.0))
    assert by is not None
    if name == "mul":
        return _times(sketch, y, by)
    if name == "div":
        inverse = (
            Scalar(value=1.0 / float(by.value or 0.0))
            if isinstance(by, Scalar) and not isinstance(by.value, str)
            else sketch.call("reciprocal.default", (by,), sketch.shape(by))
        )
        return _times(sketch, y, inverse)
    if name == "sub" and side == 1:
        y = _times(sketch, y, Scalar(value=-1.0))
    elif name == "sub":
        by = _product(sketch, by, Scalar(value=-1.0))
    return Affine(y.scale, by if y.shift is None else _sum(sketch, y.shift, by))


def _times(sketch: Sketch, y: Affine, by: Arg) -> Affine:
    scale = by if y.scale is None else _product(sketch, y.scale, by)
    return Affine(scale, None if y.shift is None else _product(sketch, y.shift, by))


def _product(sketch: Sketch, a: Arg, b: Arg) -> Arg:
    if isinstance(a, Ref):
        return sketch.mul(a, b)
    return sketch.mul(b, a) if isinstance(b, Ref) else Scalar(value=_number(a) * _number(b))


def _sum(sketch: Sketch, a: Arg, b: Arg) -> Arg:
    if isinstance(a, Ref):
        return sketch.add(a, b)
    return sketch.add(b, a) if isinstance(b, Ref) else Scalar(value=_number(a) + _number(b))


def _number(arg: Arg) -> float:
    value = arg.value if isinstance(arg, Scalar) else None
    if not isinstance(value, (int, float)):
        raise ValueError("an affine step with no number")
    return float(value)


def _parts(sketch: Sketch, made: Node) -> tuple[Ref, Ref, tuple[Arg, ...]]:
    """Input, weight and, of a convolution, its other arguments."""
    arguments = Arguments(made)
    if base(made.op) == "convolution":
        return arguments.tensor(0), arguments.tensor(1), made.args[3:]
    first = len(made.args) - 2
    return arguments.tensor(first), arguments.tensor(first + 1), ()


def _scaled(sketch: Sketch, weight: Ref, scale: Arg | None, *, convolution: bool) -> Ref:
    """The weight scaled along the outputs, in the layout it has."""
    if scale is None:
        return weight
    if isinstance(scale, Scalar):
        return sketch.mul(weight, scale)
    node, ones = sketch.node(weight.node), [1] * (len(sketch.shape(weight)) - 1)
    if convolution:
        return sketch.mul(weight, sketch.view(_ref(scale), (_count(sketch, scale), *ones)))
    if base(node.op) == "permute" and isinstance(node.args[0], Ref):
        rows = sketch.view(_ref(scale), (_count(sketch, scale), 1))
        return sketch.permute(sketch.mul(node.args[0], rows), (1, 0))
    return sketch.mul(weight, sketch.view(_ref(scale), (1, _count(sketch, scale))))


def _ref(arg: Arg) -> Ref:
    if not isinstance(arg, Ref):
        raise ValueError("a tensor was expected")
    return arg


def _count(sketch: Sketch, arg: Arg) -> int:
    return prod(sketch.shape(arg))


def _bias(sketch: Sketch, made: Node, found: Affine, out: int) -> Ref | None:
    """The bias scaled and shifted, as a vector over the outputs; None where there is none."""
    name, arguments = base(made.op), Arguments(made)
    old = {"addmm": arguments.ref(0), "convolution": arguments.ref(2)}.get(name)
    total: Arg | None = None
    if old is not None:
        total = old if found.scale is None else sketch.mul(old, found.scale)
    if found.shift is not None:
        total = found.shift if total is None else _sum(sketch, total, found.shift)
    if total is None:
        return None
    if isinstance(total, Scalar):
        return sketch.full(made.name, out, _number(total))
    if sketch.shape(total) == (1,) and out > 1:
        return sketch.add(sketch.full(made.name, out, 0.0), total)
    return _ref(total)


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
