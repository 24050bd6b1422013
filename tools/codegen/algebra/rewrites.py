"""Rewrites of whole graphs: chains of products regrouped, diagonal matrices made scalings.

Chains are multiplied in the order that costs least: (x A + b) B + c = x (A B) + (b B + c), as
products are associative and distribute over sums. With x of m rows, A of k by n and B of n by p,
the first order costs m n (k + p) multiplications and the second k p (n + m); the second pays where
m is large and n is not small. Holds for all finite inputs; roundings differ.

A product with a diagonal matrix scales rows or columns: (diag(a) B)_ij = sum_k a_i [i = k] B_kj =
a_i B_ij, as all other terms are zero times a finite number. Exact: the same products are rounded
once, and zeros are added. Conditions: the module itself makes the matrix diagonal (a mask
row == column), and inputs are finite. Such a mask is found whatever its spelling: integers made of
`arange` by views, sums and multiples are affine in the position, and a comparison of two such is
one of an affine form with zero.

Each rewrite has a name, and what a person should read about it, in a registry at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.algebra.affine import fold_into_weights, pool_after_linear_map
from kernelwright.tools.codegen.algebra.known_masks import known_mask
from kernelwright.tools.codegen.algebra.separable import separable_window
from kernelwright.tools.codegen.algebra.sketch import Shape, Sketch, broadcast
from kernelwright.tools.codegen.algebra.statistics import statistics_of_parts, sum_after_norm
from kernelwright.tools.codegen.algebra.sums import WIDE, sum_after_linear_map
from kernelwright.tools.codegen.algebra.together import steps_together
from kernelwright.tools.codegen.algebra.unrolled import unrolled_recurrence
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.codegen.lower.nests.context import Arguments, UnlikeError, base
from kernelwright.tools.types import Arg, Graph, Node, Ref, Scalar

_VIEWS = ("view", "_unsafe_view", "reshape")


def regroup_products(graph: Graph, node: Node) -> Graph | None:
    """The graph with one product of a product multiplied in the other order."""
    if base(node.op) not in ("mm", "addmm") or node.kwargs or node.out[0].dtype not in WIDE:
        return None
    sketch = Sketch(graph)
    first, second = _factors(node)
    inner = _product_behind(sketch, first)
    if inner is None:
        return None
    x, between = _factors(inner)
    (m, k), n, p = sketch.shape(x), sketch.shape(between)[1], node.out[0].shape[1]
    if k * p * (n + m) >= m * n * (k + p):
        return None
    result = sketch.product(x, sketch.product(between, second))
    shift = _bias(inner)
    if shift is not None:
        rows = sketch.view(shift, (1, *sketch.shape(shift))[-2:])
        result = sketch.add(result, sketch.product(rows, second))
    outer = _bias(node)
    return sketch.finished(node.name, result if outer is None else sketch.add(result, outer))


def _factors(node: Node) -> tuple[Ref, Ref]:
    arguments, first = Arguments(node), len(node.args) - 2
    return arguments.tensor(first), arguments.tensor(first + 1)


def _bias(node: Node) -> Ref | None:
    return Arguments(node).ref(0) if base(node.op) == "addmm" else None


def _product_behind(sketch: Sketch, factor: Ref) -> Node | None:
    """The product that a factor is, views that give its shape back allowed."""
    shape, node = sketch.shape(factor), sketch.node(factor.node)
    while sketch.alone(node.name) and base(node.op) in _VIEWS and isinstance(node.args[0], Ref):
        node = sketch.node(node.args[0].node)
    same = node.out[0].shape == shape and base(node.op) in ("mm", "addmm") and not node.kwargs
    return node if same and sketch.alone(node.name) else None


_MASK_VIEWS = ("view", "expand", "unsqueeze", "squeeze", "_unsafe_view", "alias", "reshape")


@dataclass(frozen=True)
class MaskPosition:
    """An integer as a position: constant + sum of steps, one for each dimension."""

    steps: tuple[int, ...]
    constant: int = 0

    def times(self, factor: int) -> MaskPosition:
        """A multiple."""
        return MaskPosition(tuple(step * factor for step in self.steps), self.constant * factor)

    def plus(self, other: MaskPosition) -> MaskPosition:
        """A sum; the shorter is broadcast."""
        rank = max(len(self.steps), len(other.steps))
        left, right = (((0,) * (rank - len(p.steps)) + p.steps) for p in (self, other))
        steps = tuple(a + b for a, b in zip(left, right, strict=True))
        return MaskPosition(steps, self.constant + other.constant)


def diagonal_mask(sketch: Sketch, arg: Arg) -> bool:
    """Whether a truth value is `row == column` of the last two dimensions."""
    if not isinstance(arg, Ref):
        return False
    node = sketch.node(arg.node)
    name = base(node.op)
    if name in _MASK_VIEWS:
        same = sketch.shape(node.args[0])[-2:] == node.out[0].shape[-2:]
        return same and diagonal_mask(sketch, node.args[0])
    if name != "eq":
        return False
    left, right = (place(sketch, side) for side in node.args[:2])
    if left is None or right is None:
        return False
    apart = left.plus(right.times(-1))
    rows, columns = (0, *apart.steps)[-2:]
    outer = any(apart.steps[:-2])
    return not outer and apart.constant == 0 and rows == -columns != 0


def place(sketch: Sketch, arg: Arg) -> MaskPosition | None:
    """An integer as an affine form of its position; None for any other."""
    if isinstance(arg, Scalar):
        return MaskPosition((), arg.value) if isinstance(arg.value, int) else None
    if not isinstance(arg, Ref):
        return None
    node = sketch.node(arg.node)
    name, arguments = base(node.op), Arguments(node)
    try:
        if name == "arange":
            return _arange(node.op, arguments)
        if name in _MASK_VIEWS:
            inner = place(sketch, node.args[0])
            shapes = sketch.shape(node.args[0]), node.out[0].shape
            return None if inner is None else _viewed(inner, *shapes)
        if name in ("add", "sub") and not node.kwargs:
            sides = [place(sketch, side) for side in node.args[:2]]
            left, right = sides
            if left is None or right is None:
                return None
            return left.plus(right.times(-1 if name == "sub" else 1))
    except UnlikeError:
        return None
    return None


def _arange(op: str, arguments: Arguments) -> MaskPosition:
    if op.endswith("start_step"):
        step = arguments.integer(2, "step", 1)
        return MaskPosition((step,), arguments.integer(0))
    return MaskPosition((1,), arguments.integer(0) if op.endswith("start") else 0)


def _viewed(inner: MaskPosition, old: Shape, new: Shape) -> MaskPosition | None:
    """The same numbers where dimensions of size 1 come, go or are repeated."""
    given = [step for step, size in zip(inner.steps, old, strict=True) if size > 1]
    sizes = [size for size in old if size > 1]
    steps: list[int] = []
    for size in reversed(new):
        if sizes and size == sizes[-1]:
            sizes.pop()
            steps.append(given.pop())
        else:
            steps.append(0)
    fits = broadcast(old, new) == new or not sizes
    return MaskPosition(tuple(reversed(steps)), inner.constant) if not sizes and fits else None


_SAME = ("view", "expand", "_unsafe_view", "alias", "clone")


def diagonal_product(graph: Graph, node: Node) -> Graph | None:
    """The graph with one product of a diagonal matrix made a scaling."""
    name = base(node.op)
    if name not in ("mm", "bmm", "addmm") or node.kwargs:
        return None
    sketch = Sketch(graph)
    a, b = node.args[-2:]
    if not isinstance(a, Ref) or not isinstance(b, Ref):
        return None
    result = _scaled(sketch, a, b, rows=True) or _scaled(sketch, b, a, rows=False)
    if result is None:
        return None
    if name == "addmm":
        result = sketch.add(result, node.args[0])
    return sketch.finished(node.name, result)


def _scaled(sketch: Sketch, diagonal: Ref, other: Ref, *, rows: bool) -> Ref | None:
    entries = diagonal_of(sketch, diagonal)
    if entries is None:
        return None
    batch, size = sketch.shape(entries)[:-1], sketch.shape(entries)[-1]
    factor = sketch.view(entries, (*batch, size, 1) if rows else (*batch, 1, size))
    return sketch.mul(other, factor)


def diagonal_of(sketch: Sketch, matrix: Ref) -> Ref | None:
    """The entries of a matrix that is zero elsewhere for every input; None for any other."""
    node = sketch.node(matrix.node)
    while base(node.op) in _SAME and sketch.shape(node.args[0]) == node.out[0].shape:
        node = sketch.node(node.args[0].node) if isinstance(node.args[0], Ref) else node
    if len(node.out[0].shape) < 2 or node.out[0].shape[-1] != node.out[0].shape[-2]:
        return None
    held = _masked(sketch, node)
    return None if held is None else _entries(sketch, held, node.out[0].shape)


def _masked(sketch: Sketch, node: Node) -> Ref | None:
    """What stands where the mask `row == column` holds; zero stands elsewhere."""
    if base(node.op) == "where" and len(node.args) == 3:
        mask, held, other = node.args
        if diagonal_mask(sketch, mask) and _zero(sketch, other) and isinstance(held, Ref):
            return held
    if base(node.op) == "mul" and not node.kwargs:
        for mask, held in (node.args, tuple(reversed(node.args))):
            if isinstance(mask, Ref) and isinstance(held, Ref):
                cast = sketch.node(mask.node)
                if base(cast.op) == "_to_copy" and diagonal_mask(sketch, cast.args[0]):
                    return held
    return None


def _zero(sketch: Sketch, arg: Arg) -> bool:
    if not isinstance(arg, Ref):
        return arg in (Scalar(value=0), Scalar(value=0.0))
    node = sketch.node(arg.node)
    return base(node.op) == "full" and _zero(sketch, node.args[1])


def _entries(sketch: Sketch, held: Ref, shape: tuple[int, ...]) -> Ref | None:
    """The diagonal of something broadcast to square matrices."""
    given = sketch.shape(held)
    given = (1,) * (len(shape) - len(given)) + given
    held = sketch.view(held, given)
    size = shape[-1]
    if given[-2] == given[-1] == size and size > 1:
        numbers = [Scalar(value=value) for value in (0, -2, -1)]
        return sketch.call("diagonal.default", [held, *numbers], (*given[:-2], size))
    if size in (given[-2], given[-1]):
        return sketch.view(held, (*given[:-2], size))
    return None


# No rewrite makes work for itself without end; this many are more than any module has.
MOST = 64


LOOPS = (
    GraphRewrite(
        name="unrolled_recurrence",
        title="compute all steps of a loop over time as one recurrent layer",
        proof="h_t = f(x_t U + h_(t-1) W + b) for the library's cells is what its layers compute "
        "of all x_t; one weight of both is cut into U and W, and sigmoid(-a) = 1 - sigmoid(a)",
        conditions="steps differ in nothing but what they read, and read nothing that was made of "
        "the states in another way",
        change=unrolled_recurrence,
    ),
    GraphRewrite(
        name="steps_together",
        title="compute of all steps at once what is computed of each",
        proof="rows of a product, and elements of an elementwise operator, do not depend on others",
        conditions="the steps' results are concatenated in their order",
        change=steps_together,
    ),
)
REWRITES = (
    *LOOPS,
    GraphRewrite(
        name="known_mask",
        title="leave a mask that is known beforehand to the call",
        proof="what is made of no input and no weight is the same in every call; a mask that keeps "
        "the columns up to the row's own number is causal, and one that keeps all is none",
        conditions="the mask was computed and found to be exactly that",
        change=known_mask,
    ),
    GraphRewrite(
        name="separable_window",
        title="slide a window of factors along one side after the other",
        proof="sum_ij a_i b_j x_ij = sum_i a_i sum_j b_j x_ij, padding being zeros in both",
        conditions="the module itself makes the weight of a column and a row; no channel meets "
        "another; float32 or float64; finite inputs, and sums along a side in range",
        change=separable_window,
    ),
    GraphRewrite(
        name="diagonal_product",
        title="scale rows instead of multiplying by a diagonal matrix",
        proof="(diag(a) B)_ij = a_i B_ij, as all other terms are zero; exact but for the sign of "
        "zeros",
        conditions="the module itself masks the matrix to its diagonal; finite inputs",
        change=diagonal_product,
    ),
    GraphRewrite(
        name="sum_after_linear_map",
        title="sum the weight, not the outputs",
        proof="sum_n sum_k x_k W_kn = sum_k x_k (sum_n W_kn): a finite double sum may be taken in "
        "either order, so a sum over outputs is a product with the summed weight",
        conditions="nothing else reads the outputs; float32 or float64; finite inputs",
        change=sum_after_linear_map,
    ),
    GraphRewrite(
        name="sum_after_norm",
        title="sum before normalising",
        proof="sum (x - m) r w + b = (sum x - n m) r w + n b, as a normalised value is affine in "
        "x, and sum x comes out of the pass that makes the statistics",
        conditions="nothing else reads the normalised values, or the statistics are taken along "
        "more than is summed; float32 or float64; finite inputs",
        change=sum_after_norm,
    ),
    GraphRewrite(
        name="statistics_of_parts",
        title="statistics of the whole from those of its parts",
        proof="parts of n elements with means m_i and variances v_i have together the mean m of "
        "the m_i and the variance mean (v_i + (m_i - m)^2), and n m_i is a part's sum: one pass "
        "over the tensor makes both",
        conditions="parts of equal size, one statistic's within the other's; float32 or float64; "
        "finite inputs",
        change=statistics_of_parts,
    ),
    GraphRewrite(
        name="pool_after_linear_map",
        title="pool the weight, not the outputs",
        proof="an average over a window of outputs is linear in them: mean_j (x W)_j = "
        "x (mean_j W_j), so the product shrinks by the window",
        conditions="windows without padding; nothing else reads the outputs; float32 or float64; "
        "finite inputs",
        change=pool_after_linear_map,
    ),
    GraphRewrite(
        name="regroup_products",
        title="multiply in the cheaper order",
        proof="(x A) B = x (A B), and a bias between them adds b B: products are associative",
        conditions="fewer multiplications; nothing else reads the product between; float32 or "
        "float64; finite inputs",
        change=regroup_products,
    ),
    GraphRewrite(
        name="fold_into_weights",
        title="fold scales and shifts into the weight",
        proof="(x W + b) s + t = x (W s) + (b s + t) for s and t that vary along outputs only; "
        "statistics of the batch itself are not such",
        conditions="the scaled value is returned or read by another product, so that its pass "
        "goes; float32 or float64; finite inputs",
        change=fold_into_weights,
    ),
)


def rewritten(
    graph: Graph, rewrites: Sequence[GraphRewrite] = REWRITES
) -> tuple[Graph, tuple[GraphRewrite, ...]]:
    """The graph after every rewrite that applies, and which ones did, in order."""
    used: list[GraphRewrite] = []
    for _ in range(MOST):
        found = _once(graph, rewrites)
        if found is None:
            break
        graph, rewrite = found
        used.append(rewrite)
    return graph, tuple(dict.fromkeys(used))


def _once(graph: Graph, rewrites: Sequence[GraphRewrite]) -> tuple[Graph, GraphRewrite] | None:
    for rewrite in rewrites:
        for node in graph.nodes:
            changed = rewrite.change(graph, node)
            if changed is not None:
                return changed, rewrite
    return None


def loops_as_layers(graph: Graph) -> Graph:
    """The graph with loops over time that a forward writes out as recurrent layers."""
    return rewritten(graph, LOOPS)[0]
