"""Matrix products with a vector: memory-bound, so they are reductions here.

Products of two real matrices stay with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Expr, computed
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import Node, TensorSpec

Meaning = Callable[[Context, Node, Arguments], None]


def _product(left: int, right: int, bias: int | None) -> Meaning:
    """Positions of the factors, and of what is added."""

    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        a, b = context.value(arguments.tensor(left)), context.value(arguments.tensor(right))
        b = views.unsqueeze(b, 1) if len(b.dims) == 1 else b
        a = views.unsqueeze(a, 0) if len(a.dims) == 1 else a
        if 1 not in (a.shape[-2], b.shape[-1]) or not node.out[0].dtype.is_floating:
            raise UnlikeError("a product of two matrices")
        value = None if bias is None else _added(arguments, bias)
        _reduce(context, node, a, b, value)

    return meaning


def _added(arguments: Arguments, at: int) -> int:
    if arguments.number(3, "beta", 1) != 1 or arguments.number(4, "alpha", 1) != 1:
        raise UnlikeError("a scaled product")
    return at


def _reduce(context: Context, node: Node, a: View, b: View, bias: int | None) -> None:
    batch, rows, columns = a.shape[:-2], a.shape[-2], b.shape[-1]
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    a = views.unsqueeze(a, len(batch) + 1)
    b = views.unsqueeze(views.permute(b, order), len(batch))
    shape = (*batch, rows, columns, a.shape[-1])
    given = [a, b]
    if bias is not None:
        added = context.value(Arguments(node).tensor(bias))
        kept = views.reshape(views.expand(added, node.out[0].shape), shape[:-1])
        if kept is None:
            raise UnlikeError("a bias of no stride")
        given.append(views.unsqueeze(kept, len(shape) - 1))
    space = context.space(given, shape)
    factors = [context.load(where, node.out[0].dtype) for where in space.addresses]
    value: Expr = context.ops("mul", factors[0], factors[1])
    outer, inner = space.names(range(len(shape) - 1)), space.names([len(shape) - 1])
    if inner:
        value = context.pool.make("reduce", value.dtype, (value,), word="sum")
    if bias is not None:
        value = context.ops("add", value, factors[2])
    made = context.buffer(node.name, TensorSpec(shape=shape[:-1], dtype=node.out[0].dtype))
    value = context.ops.cast(value, computed(node.out[0].dtype))
    where = space.at(made, range(len(shape) - 1))
    context.add(Nest(outer, inner, (Write(where, value),)))
    result = views.reshape(made, node.out[0].shape)
    context.values[node.name] = (made if result is None else result,)


PRODUCTS: Mapping[str, Meaning] = {
    "mm": _product(0, 1, None),
    "bmm": _product(0, 1, None),
    "mv": _product(0, 1, None),
    "dot": _product(0, 1, None),
    "addmm": _product(1, 2, 0),
    "addmv": _product(1, 2, 0),
}
