"""The sum of a value over some dimensions, made without making the value.

Sums commute with what is linear: sum(c y) = c sum(y) for a c that does not vary along them,
sum(y + z) = sum(y) + sum(z), and a view only renames elements. Going up a chain of such operators,
a base at its top says what is summed there instead (`product`, `convolution`, `normalised`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from kernelwright.tools.codegen.algebra.parts import Parts, nested, refined
from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.types import Arg, DType, Node, Ref, Scalar

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
