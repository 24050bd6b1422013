"""A product with a diagonal matrix scales rows or columns.

(diag(a) B)_ij = sum_k a_i [i = k] B_kj = a_i B_ij: all other terms are zero times a finite number.
Exact: the same products are rounded once, and zeros are added. Conditions: the module itself makes
the matrix diagonal (a mask row == column), and inputs are finite.
"""

from __future__ import annotations

from kernelwright.tools.codegen.algebra.masks import diagonal_mask
from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.lower.nests.arguments import base
from kernelwright.tools.types import Arg, Graph, Node, Ref, Scalar

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
