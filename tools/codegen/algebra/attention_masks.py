"""What stands between products of attention that a module writes out: masks, biases, casts, views.

A boolean mask is one for the call, a bias is added, and a mask of positions alone that keeps what
lies up to the diagonal is said as such. Where scores were viewed with other numbers of dimensions
when a mask was added (windows of several images, heads and batches as one), masks are joined in the
view with the most, and what images share stays one element in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kernelwright.tools.codegen.algebra.rewrites import place
from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch, sizes
from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, base
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import Arg, DType, Node, Ref, Scalar, TensorSpec

_VIEWS = frozenset({
    "_unsafe_view", "alias", "clone", "detach", "expand", "permute", "reshape", "squeeze",
    "unsqueeze", "view",
})  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """A product of queries and keys, what it is multiplied by, and what is masked out or added.

    Conditions and biases have as many dimensions as the scores had where they were used. `shape` is
    that of the softmax; `views` has every shape that scores were used in, one for each number of
    dimensions. `factors` are numbers for rows.
    """

    product: Node
    shape: Shape
    views: tuple[Shape, ...]
    scale: float = 1.0
    factors: tuple[Ref, ...] = ()
    biases: tuple[Ref, ...] = ()
    masks: tuple[Mask, ...] = ()
    negligible: float = -math.inf

    @property
    def fine(self) -> Shape:
        """The view with the most dimensions."""
        return max(self.views, key=len)

    def viewed(self, shape: Shape) -> Scores | None:
        """Used in one more shape; None where another one has as many dimensions."""
        if shape in self.views:
            return self
        if any(len(one) == len(shape) for one in self.views):
            return None
        return replace(self, views=(*self.views, shape))


@dataclass(frozen=True)
class Mask:
    """A truth value for each score: whether it counts, or does not."""

    condition: Ref
    keeps: bool


def behind(sketch: Sketch, arg: Arg | None) -> Node | None:
    """The node that a tensor comes from unchanged, but for views and casts of floats.

    Dimensions may be moved on the way, if they are moved back.
    """
    if not isinstance(arg, Ref):
        return None
    first = node = sketch.node(arg.node)
    chain: list[Node] = []
    while only_moves(sketch, node):
        chain.append(node)
        source = node.args[0]
        assert isinstance(source, Ref)
        node = sketch.node(source.node)
    return node if _in_order(node.out[0], chain) else first


def only_moves(sketch: Sketch, node: Node) -> bool:
    """Whether a node has all elements of what it reads, once each."""
    if not node.args or not isinstance(node.args[0], Ref):
        return False
    name, old = base(node.op), sketch.node(node.args[0].node).out[0]
    if name == "_to_copy":
        return node.out[0].dtype.is_floating and old.dtype.is_floating
    return name in _VIEWS and old.numel == node.out[0].numel


def _in_order(spec: TensorSpec, chain: Sequence[Node]) -> bool:
    """Whether a chain of views, the last one first, leaves elements in their order."""
    view: View | None = views.whole("", TensorSpec(shape=spec.shape, dtype=spec.dtype))
    for node in reversed(chain):
        if view is not None and base(node.op) == "permute":
            view = views.permute(view, Arguments(node).integers(1) or ())
        elif view is not None:
            view = views.reshape(view, node.out[0].shape)
    atoms = views.coalesced([atom for dim in view.dims for atom in dim]) if view else []
    return view is not None and all(atom.step == 1 for atom in atoms)


def constant(sketch: Sketch, arg: Arg) -> float | None:
    """A number, or a tensor that is filled with one."""
    if isinstance(arg, Ref):
        node = behind(sketch, arg)
        if node is None or base(node.op) != "full":
            return None
        arg = node.args[1]
    value = arg.value if isinstance(arg, Scalar) else None
    return float(value) if isinstance(value, int | float) else None


def lifted(sketch: Sketch, x: Ref, shape: Shape) -> Ref:
    """With as many dimensions."""
    missing = len(shape) - len(sketch.shape(x))
    return sketch.view(x, (*(1,) * missing, *sketch.shape(x)))


def masking(
    sketch: Sketch, found: Scores, batch: tuple[int, int], dtype: DType
) -> tuple[Arg, bool] | None:
    """The mask that a call is given, and whether it is causal; None where neither says it."""
    if any(sketch.node(one.node).out[0].dtype is not dtype for one in found.biases):
        return None
    if any(sketch.node(one.condition.node).out[0].dtype is not DType.BOOL for one in found.masks):
        return None
    causal = [one for one in found.masks if _keeps_triangle(sketch, one)]
    if causal and len(causal) == len(found.masks) and not found.biases:
        return Scalar(value=None), True
    if len(found.views) > 1:
        finer = _in_fine(sketch, found)
        if finer is None:
            return None
        found = finer
    keep = _all_of(sketch, found.masks)
    bias = _sum_of(sketch, found.biases)
    if bias is not None and keep is not None:
        nothing = sketch.view(sketch.full(bias.node, 1, -math.inf), ())
        bias, keep = sketch.where(keep, bias, nothing), None
    mask = bias if bias is not None else keep
    if mask is None:
        return Scalar(value=None), False
    if len(found.fine) > len(found.shape):
        mask = _merged(sketch, mask, found)
    shape = sketch.shape(mask)
    return sketch.view(mask, (*(1,) * (len(batch) + 2 - len(shape)), *shape)), False


def _parts_of(shape: Shape, fine: Shape) -> list[Shape] | None:
    """The dimensions that each one of a shape was split into; None where it was not split."""
    left, found = list(fine), list[Shape]()
    for size in shape:
        parts: list[int] = []
        while left and (not parts or prod(parts) < size):
            parts.append(left.pop(0))
        if prod(parts) != size:
            return None
        found.append(tuple(parts))
    return found if not left else None


def _in_fine(sketch: Sketch, found: Scores) -> Scores | None:
    """Biases and masks with the dimensions of the finest view of scores."""
    split = {len(view): _parts_of(view, found.fine) for view in found.views}

    def finer(x: Ref) -> Ref | None:
        parts = split.get(len(sketch.shape(x)))
        if parts is None:
            return None
        sides = zip(sketch.shape(x), parts, strict=True)
        shape = [one for size, of in sides for one in (of if size > 1 else (1,) * len(of))]
        return sketch.view(x, shape)

    biases = [finer(one) for one in found.biases]
    conditions = [finer(one.condition) for one in found.masks]
    kept = tuple(
        Mask(condition, one.keeps)
        for one, condition in zip(found.masks, conditions, strict=True)
        if condition is not None
    )
    if None in biases or len(kept) < len(found.masks) or not _parts_of(found.shape, found.fine):
        return None
    return replace(found, biases=tuple(one for one in biases if one is not None), masks=kept)


def _merged(sketch: Sketch, mask: Ref, found: Scores) -> Ref:
    """With the dimensions of scores again; what several share is one element in memory still."""
    parts, left = _parts_of(found.shape, found.fine) or [], list(sketch.shape(mask))
    full: list[int] = []
    merged: list[int] = []
    for of in parts:
        mine, left = left[: len(of)], left[len(of) :]
        is_used = any(size > 1 for size in mine)
        full += of if is_used else mine
        merged.append(prod(of) if is_used else 1)
    if tuple(full) != sketch.shape(mask):
        mask = sketch.call("expand.default", (mask, sizes(full)), full)
    return sketch.call("reshape.default", (mask, sizes(merged)), merged)


def _sum_of(sketch: Sketch, biases: tuple[Ref, ...]) -> Ref | None:
    total: Ref | None = None
    for one in biases:
        total = one if total is None else sketch.add(total, one)
    return total


def _all_of(sketch: Sketch, masks: tuple[Mask, ...]) -> Ref | None:
    """A truth value that holds where every mask keeps a score."""
    found: Ref | None = None
    for one in masks:
        keep = one.condition
        if not one.keeps:
            keep = sketch.call("logical_not.default", (keep,), sketch.shape(keep))
        found = keep if found is None else sketch.both(found, keep)
    return found


# What stands for a comparison when it is denied.
_DENIED = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}


def _comparison(sketch: Sketch, mask: Mask) -> tuple[Node | None, bool]:
    """The comparison that a mask is, and whether it keeps where that holds.

    Triangles of ones are such, with what makes a truth value of a number again.
    """
    node, keeps = behind(sketch, mask.condition), mask.keeps
    while node is not None and base(node.op) not in _DENIED:
        step = _denied_or_alike(sketch, node)
        if step is None:
            return None, keeps
        source, is_denied = step
        node, keeps = behind(sketch, source), keeps != is_denied
    return (node, keeps) if node is not None and len(node.args) == 2 else (None, keeps)


def _denied_or_alike(sketch: Sketch, node: Node) -> tuple[Arg, bool] | None:
    """What a truth value is of one other, and whether it is denied; None for anything else."""
    name, args = base(node.op), node.args
    if name in ("logical_not", "bitwise_not"):
        return args[0], True
    if name == "_to_copy":
        return args[0], False
    numbers = [constant(sketch, arg) for arg in args]
    if name in ("eq", "ne") and numbers[1] == 0:
        return args[0], name == "eq"
    if name == "logical_and" and True in numbers:
        return args[1 - numbers.index(True)], False
    if name == "where" and None not in numbers[1:] and numbers.count(0.0) == 1:
        return args[0], numbers[1] == 0
    return None


def _keeps_triangle(sketch: Sketch, mask: Mask) -> bool:
    """Whether a mask keeps exactly the columns up to the row's own number."""
    node, keeps = _comparison(sketch, mask)
    if node is None or node.out[0].shape[-2:] != sketch.shape(mask.condition)[-2:]:
        return False
    name = base(node.op) if keeps else _DENIED[base(node.op)]
    left, right = (place(sketch, side) for side in node.args)
    if left is None or right is None:
        return False
    apart = left.plus(right.times(-1))
    # In integers, x > 0 is x - 1 >= 0; what is at most something is turned.
    if name in ("le", "lt"):
        apart = apart.times(-1)
    constant = apart.constant - (name in ("gt", "lt"))
    rows, columns = (0, 0, *apart.steps)[-2:]
    return not any(apart.steps[:-2]) and rows > 0 and columns == -rows and 0 <= constant < rows
