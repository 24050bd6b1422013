"""Sums of a value over some dimensions, made without making the value.

Sums commute with what is linear: sum(c y) = c sum(y) for a c that does not vary along them,
sum(y + z) = sum(y) + sum(z), and a view only renames elements. Going up a chain of such operators,
a base at its top says what is summed there instead.

Over the outputs of matrix products and convolutions: sum_n (x W)_mn = sum_n sum_k x_mk W_kn =
sum_k x_mk (sum_n W_kn), as a finite double sum may be taken in either order, so the product shrinks
to one with the summed weight. The same holds for rows, for groups of outputs (a view of them) and
for sums weighted per output. A convolution is linear in its input, its weight and its bias alike,
so sums over its output channels sum its weight, and sums over the batch sum its input. Holds for
all finite inputs; the order of additions changes.

Over all of space of a convolution: output position o meets input position i at tap t where
i = o s + t d - p (a transposed convolution the other way round), so the sum over all o of
x[i(o, t)] w[t] is w[t] times the sum of x over the positions that tap t meets: per dimension a
slice, as long as slices agree a single one. Then sum_o y = sum over taps of (slice sums of x) @
w[t]: exact in real numbers for every padding, stride and dilation, as positions outside the input
add nothing and those outside the output are not met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from kernelwright.tools.codegen.algebra.sketch import Parts, Sketch, nested, refined, whole
from kernelwright.tools.codegen.lower.nests.context import Arguments, base
from kernelwright.tools.types import Arg, DType, Graph, Node, Ref, Scalar

WIDE = (DType.FLOAT32, DType.FLOAT64)
VIEWS = ("view", "_unsafe_view", "unsqueeze", "squeeze", "reshape", "clone")


class Sum:
    """What is summed: the parts, and a weight by which elements are multiplied first.

    `weight` has the shape of all parts, 1 where it does not vary; None for a plain sum.
    """

    def __init__(self, parts: Parts, weight: Ref | None = None) -> None:
        self.parts, self.weight = parts, weight


Base = Callable[[Sketch, Node, Sum], Ref | None]


class Summing:
    """Sums along chains of one graph; `base` answers for the nodes where a chain begins."""

    def __init__(self, sketch: Sketch, base: Base) -> None:
        self.sketch, self._base = sketch, base

    def of(self, arg: Arg, wanted: Sum) -> Ref | None:
        """The sum of a node, in the shape of its parts; None where no base is reached."""
        if not isinstance(arg, Ref):
            return None
        node = self.sketch.node(arg.node)
        if node.out[0].dtype not in WIDE:
            return None
        found = self._base(self.sketch, node, wanted)
        if found is not None or not self.sketch.alone(node.name):
            return found
        return self.through(node, wanted)

    def through(self, node: Node, wanted: Sum) -> Ref | None:
        """The sum of a node by way of what it is made of, whoever else reads the node."""
        name = base(node.op)
        if name in ("add", "sub") and not node.kwargs and len(node.args) == 2:
            return self._sum_of_two(node, wanted)
        if name == "mul" and not node.kwargs:
            y, by = node.args[:2]
            return self._scaled(node, y, by, wanted) or self._scaled(node, by, y, wanted)
        if name == "div" and not node.kwargs:
            return self._divided(node, wanted)
        if name == "neg":
            inner = self.of(node.args[0], wanted)
            return None if inner is None else self.sketch.neg(inner)
        if name in VIEWS and isinstance(node.args[0], Ref):
            return self._viewed(node.args[0], wanted)
        if name == "sum":
            return self._nested(node, wanted)
        return None

    def _sum_of_two(self, node: Node, wanted: Sum) -> Ref | None:
        sides: list[Arg | None] = [self._side(node, arg, wanted) for arg in node.args]
        left, right = sides
        if left is None and right is None:
            return None
        left = self.plain(node.args[0], wanted) if left is None else left
        right = self.plain(node.args[1], wanted) if right is None else right
        return self._joined(base(node.op), left, right)

    def _joined(self, name: str, left: Arg | None, right: Arg | None) -> Ref | None:
        """Two sums added or subtracted; at most one of them is a number."""
        if left is None or right is None:
            return None
        if isinstance(left, Ref):
            return self.sketch.add(left, right) if name == "add" else self.sketch.sub(left, right)
        if not isinstance(right, Ref):
            return None
        return self.sketch.add(right if name == "add" else self.sketch.neg(right), left)

    def _side(self, node: Node, arg: Arg, wanted: Sum) -> Ref | None:
        whole = self.sketch.shape(arg) == node.out[0].shape
        return self.of(arg, wanted) if whole else None

    def _scaled(self, node: Node, y: Arg, by: Arg, wanted: Sum) -> Ref | None:
        """The sum of y * by."""
        if self.sketch.shape(y) != node.out[0].shape:
            return None
        if isinstance(by, Scalar) or self._still(by, wanted.parts):
            inner = self.of(y, wanted)
            return None if inner is None else self.sketch.mul(inner, self._lifted(by, wanted))
        weight = self._lifted(by, wanted)
        if not isinstance(weight, Ref) or numel(self.sketch, weight) == prod(wanted.parts.flat):
            return None
        if wanted.weight is not None:
            weight = self.sketch.mul(wanted.weight, weight)
        return self.of(y, Sum(wanted.parts, weight))

    def _divided(self, node: Node, wanted: Sum) -> Ref | None:
        y, by = node.args[:2]
        still = isinstance(by, Scalar) or self._still(by, wanted.parts)
        if not still or self.sketch.shape(y) != node.out[0].shape:
            return None
        inner = self.of(y, wanted)
        return None if inner is None else self.sketch.div(inner, self._lifted(by, wanted))

    def _viewed(self, source: Ref, wanted: Sum) -> Ref | None:
        parts = wanted.parts.viewed(self.sketch.shape(source))
        if parts is None:
            return None
        weight = wanted.weight
        if weight is not None:
            shape = refined(self.sketch.shape(weight), wanted.parts, parts)
            weight = self.sketch.view(weight, shape)
        inner = self.of(source, Sum(parts, weight))
        return None if inner is None else self.sketch.view(inner, wanted.parts.kept)

    def _nested(self, node: Node, wanted: Sum) -> Ref | None:
        """A sum of sums is one sum over both."""
        source, arguments = node.args[0], Arguments(node)
        shape = self.sketch.shape(source)
        dims = {dim % len(shape) for dim in arguments.integers(1, "dim") or range(len(shape))}
        inner = nested(wanted.parts, shape, dims, kept=arguments.flag(2, "keepdim"))
        weight = wanted.weight
        if weight is not None:
            given = iter(self.sketch.shape(weight))
            flags = (at in dims for at, parts in enumerate(inner.dims) for _ in parts)
            weight = self.sketch.view(weight, [1 if flag else next(given) for flag in flags])
        found = self.of(source, Sum(inner, weight))
        return None if found is None else self.sketch.view(found, wanted.parts.kept)

    def plain(self, arg: Arg, wanted: Sum) -> Arg | None:
        """The sum of something broadcast to the parts, read as it is."""
        sketch, parts = self.sketch, wanted.parts
        lifted = self._lifted(arg, wanted)
        if wanted.weight is not None:
            lifted = sketch.mul(wanted.weight, lifted)
        if isinstance(lifted, Scalar) and isinstance(lifted.value, (int, float)):
            count = prod(parts.flat[at] for at in parts.summed)
            return Scalar(value=float(lifted.value) * count)
        if not isinstance(lifted, Ref):
            return None
        shape = sketch.shape(lifted)
        varied = [at for at in sorted(parts.summed) if shape[at] > 1]
        repeats = prod(parts.flat[at] for at in parts.summed if shape[at] == 1)
        result = sketch.total(lifted, varied)
        return result if repeats == 1 else sketch.mul(result, Scalar(value=float(repeats)))

    def _still(self, arg: Arg, parts: Parts) -> bool:
        """Whether a tensor does not vary along what is summed."""
        lifted = parts.lifted(self.sketch.shape(arg))
        return lifted is not None and all(lifted[at] == 1 for at in parts.summed)

    def _lifted(self, arg: Arg, wanted: Sum) -> Arg:
        """An operand in parts; a number as it is."""
        if not isinstance(arg, Ref):
            return arg
        shape = wanted.parts.lifted(self.sketch.shape(arg))
        return arg if shape is None else self.sketch.view(arg, shape)


def numel(sketch: Sketch, ref: Ref) -> int:
    """Number of elements of a tensor."""
    return prod(sketch.shape(ref))


# Each distinct combination of slices is a small product of its own; many of them are launches.
MOST_SLICES = 9


@dataclass(frozen=True)
class Met:
    """Input positions that some taps of one dimension meet; taps from `first` to `last`."""

    start: int
    stop: int
    step: int
    first: int
    last: int


def summed_over_space(sketch: Sketch, node: Node, parts: Parts) -> Ref | None:
    """The sum over space (and what else the parts say), without bias; None if too many slices."""
    arguments = Arguments(node)
    x, weight = arguments.tensor(0), arguments.tensor(1)
    slices = [list(_met(sketch, node, at)) for at in range(len(node.out[0].shape) - 2)]
    if prod(map(len, slices)) > MOST_SLICES or any(not found for found in slices):
        return None
    total: Ref | None = None
    for chosen in product(*slices):
        part = sketch.product(_inputs(sketch, x, chosen), _taps(sketch, weight, node, chosen))
        total = part if total is None else sketch.add(total, part)
    if total is None:
        return None
    batch, channels = parts.dims[0], parts.dims[1]
    dims = [at for at in (*parts.of(0), *parts.of(1)) if at in parts.summed]
    return sketch.view(sketch.total(sketch.view(total, [*batch, *channels]), dims), parts.kept)


def _inputs(sketch: Sketch, x: Ref, chosen: Sequence[Met]) -> Ref:
    """Sums of x over the positions met: (batch, input channels)."""
    for at, met in enumerate(chosen):
        x = sketch.cut(x, 2 + at, met.start, met.stop, met.step)
    summed = sketch.total(x, range(2, 2 + len(chosen)))
    return sketch.view(summed, sketch.shape(x)[:2])


def _taps(sketch: Sketch, weight: Ref, node: Node, chosen: Sequence[Met]) -> Ref:
    """The weight summed over taps that meet the same positions: (input, output channels)."""
    for at, met in enumerate(chosen):
        weight = sketch.cut(weight, 2 + at, met.first, met.last + 1)
    shape = sketch.shape(weight)[:2]
    summed = sketch.view(sketch.total(weight, range(2, 2 + len(chosen))), shape)
    return summed if Arguments(node).flag(6) else sketch.permute(summed, (1, 0))


def _met(sketch: Sketch, node: Node, at: int) -> Iterator[Met]:
    """The slices of one dimension; neighbouring taps that meet the same positions share one."""
    arguments = Arguments(node)
    size = sketch.shape(arguments.tensor(0))[2 + at]
    taps = sketch.shape(arguments.tensor(1))[2 + at]
    stride, padding, dilation = (_at(arguments, number, at) for number in (3, 4, 5))
    out = node.out[0].shape[2 + at]
    previous: Met | None = None
    for tap in range(taps):
        shift = tap * dilation - padding
        found = _within(stride, shift, size, out, scatter=arguments.flag(6))
        if previous is not None and found != (previous.start, previous.stop, previous.step):
            yield from _if_any(previous)
            previous = None
        previous = Met(*found, previous.first if previous is not None else tap, tap)
    if previous is not None:
        yield from _if_any(previous)


def _within(stride: int, shift: int, size: int, out: int, *, scatter: bool) -> tuple[int, int, int]:
    """Start, stop and step of the input positions that a tap meets."""
    # o * stride + shift lies in [0, limit) for o in [first, last).
    limit, count = (out, size) if scatter else (size, out)
    first = max(0, -(shift // stride))
    last = min(count, (limit - 1 - shift) // stride + 1)
    if scatter:
        return first, max(first, last), 1
    start = first * stride + shift
    return start, start + max(0, (last - first - 1) * stride + 1), stride


def _if_any(met: Met) -> Iterator[Met]:
    if met.stop > met.start:
        yield met


def _at(arguments: Arguments, position: int, dim: int) -> int:
    values = arguments.integers(position) or (1,)
    return values[dim] if len(values) > dim else values[0]


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
