"""Windows whose weight the module itself makes of factors: one pass along each side.

sum_ij a_i b_j x_(y+i, x+j) = sum_i a_i sum_j b_j x_(y+i, x+j), so a window of H x W terms is two of
H and of W. Padding is zeros, of which the inner sums are zeros too. Factors are found behind views,
copies and broadcasts: a product of tensors of which none varies along both sides, or the matrix
product of a column and a row. A weight that is given has no factors: it may change.

Small windows stay as they are: what lies between the passes goes through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch, sizes
from kernelwright.tools.codegen.algebra.sums import WIDE
from kernelwright.tools.codegen.lower.nests.context import Arguments, base
from kernelwright.tools.types import Arg, Graph, Node, Ref, Scalar

# Terms from which two passes take less than one: a term of an output takes about a fourth of what
# one more value stored and read does (by the roofline, not measured).
_FEWEST_TERMS = 64
_COPIES = frozenset({"clone", "contiguous", "alias", "detach"})
_BROADCASTS = frozenset({"expand", "repeat"})
_SHAPES = frozenset({"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze"})

# A tensor, and its shape where it is broadcast to what it is a factor of.
Factor = tuple[Ref, Shape]


def separable_window(graph: Graph, node: Node) -> Graph | None:
    """The graph with a window of factors as two passes."""
    arguments, sketch = Arguments(node), Sketch(graph)
    if base(node.op) != "convolution" or arguments.flag(6) or node.out[0].dtype not in WIDE:
        return None
    x, weight = arguments.tensor(0), arguments.tensor(1)
    shape, channels = sketch.shape(weight), arguments.integer(8)
    both = len(shape) == len(sketch.shape(x)) == 4
    alone = both and sketch.shape(x)[1] == node.out[0].shape[1] == channels
    if not alone or prod(shape[2:]) < _FEWEST_TERMS:
        return None
    factors = _factors(sketch, weight)
    if factors is None or any(part[2] > 1 and part[3] > 1 for _, part in factors):
        return None
    columns = [one for one in factors if one[1][2] > 1]
    rows = [one for one in factors if one[1][2] == 1]
    if not columns or not any(part[3] > 1 for _, part in rows):
        return None
    row = _weight(sketch, rows, (channels, 1, 1, shape[3]))
    column = _weight(sketch, columns, (channels, 1, shape[2], 1))
    given = (*sketch.shape(x)[:3], node.out[0].shape[3])
    between = sketch.call("convolution.default", _along(arguments, 3, x, row), given)
    along = _along(arguments, 2, between, column, node.args[2])
    return sketch.finished(node.name, sketch.call("convolution.default", along, node.out[0].shape))


def _along(
    arguments: Arguments, dim: int, x: Ref, weight: Ref, bias: Arg | None = None
) -> list[Arg]:
    """The arguments of a convolution that slides along one dimension alone."""
    numbers = [_only(arguments, at, dim, still) for at, still in ((3, 1), (4, 0), (5, 1))]
    return [x, weight, bias or Scalar(value=None), *numbers, *arguments.node.args[6:]]


def _only(arguments: Arguments, at: int, dim: int, still: int) -> Arg:
    """A pair of numbers of a convolution, of which one says what holds where nothing slides."""
    given = arguments.integers(at) or (still,)
    both = given * 2 if len(given) == 1 else given
    return sizes([both[0] if dim == 2 else still, both[1] if dim == 3 else still])


def _weight(sketch: Sketch, factors: Sequence[Factor], shape: Shape) -> Ref:
    """The product of some factors in a weight's shape."""
    product = reduce(sketch.mul, (sketch.view(ref, part) for ref, part in factors))
    if sketch.shape(product) == shape:
        return product
    return sketch.call("expand.default", (product, sizes(shape)), shape)


def _factors(sketch: Sketch, x: Ref) -> list[Factor] | None:
    """What a tensor is the product of; None where it is given, or made otherwise."""
    node, shape = sketch.node(x.node), sketch.shape(x)
    inputs = [arg for arg in node.args if isinstance(arg, Ref)]
    if not inputs or any(sketch.node(one.node).out[0].dtype not in WIDE for one in inputs):
        return None
    if base(node.op) == "mm" and sketch.shape(inputs[0])[1] == 1:
        return [(one, sketch.shape(one)) for one in inputs]
    if base(node.op) == "mul" and len(inputs) == 2:
        return [(one, _lifted(sketch.shape(one), shape)) for one in inputs]
    if base(node.op) not in _COPIES | _BROADCASTS | _SHAPES:
        return None
    found = _factors(sketch, inputs[0])
    if found is None:
        return None
    inner = sketch.shape(inputs[0])
    if base(node.op) in _BROADCASTS:
        lifted = _lifted(inner, shape)
        if any(one not in (1, size) for one, size in zip(lifted, shape, strict=True)):
            return None
        return [(ref, _lifted(part, shape)) for ref, part in found]
    if [size for size in inner if size > 1] != [size for size in shape if size > 1]:
        return None
    return [(ref, _reshaped(part, inner, shape)) for ref, part in found]


def _lifted(part: Shape, shape: Shape) -> Shape:
    return (1,) * (len(shape) - len(part)) + part


def _reshaped(part: Shape, inner: Shape, shape: Shape) -> Shape:
    """A factor's shape where dimensions of size 1 came or went."""
    left = iter([one for one, size in zip(part, inner, strict=True) if size > 1])
    return tuple(1 if size == 1 else next(left) for size in shape)
