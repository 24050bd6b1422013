"""ATen's reductions and scans as nests: kept dimensions outside, reduced ones inside.

Matrix products with a vector are memory-bound, so they are reductions here. Products of two real
matrices are, where a lowering asks for them, and stay with the library otherwise; those of double
precision, which no kernel of ours is made for, always do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import Arguments, Context, Space, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Address, Expr, computed
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import DType, Node, TensorSpec


class Reduction:
    """One reducing node: its argument at a position of the space, and the dimensions reduced."""

    def __init__(
        self, context: Context, node: Node, dims: Sequence[int] | None, dtype: DType | None = None
    ) -> None:
        self.context, self.node, self.ops = context, node, context.ops
        view = context.value(Arguments(node).tensor(0))
        rank = len(view.shape)
        self.dims = sorted({dim % rank for dim in dims} if dims and rank else range(rank))
        self.kept = [dim for dim in range(rank) if dim not in self.dims]
        self.space: Space = context.space([view], view.shape)
        self.inner = self.space.names(self.dims)
        self.count = math.prod(view.shape[dim] for dim in self.dims)
        work = dtype or view.dtype
        self.x = context.load(self.space.addresses[0], work)

    def reduce(self, kind: str, x: Expr | None = None) -> Expr:
        """The reduction of `x` (the argument)."""
        x = self.x if x is None else x
        return reduced(self.context, kind, x, bool(self.inner))

    def mean(self, x: Expr | None = None) -> Expr:
        """Sum over count."""
        return self.ops("div", self.reduce("sum", x), float(self.count))

    def moments(self, correction: float) -> tuple[Expr, Expr]:
        """Variance and mean."""
        mean = self.reduce("moments")
        squares = second(self.context, mean, self.x)
        left = max(self.count - correction, 0.0)
        # Nothing left to divide by: PyTorch gives NaN for 0 / 0, and so does this.
        return self.ops("div", squares, float(left)), mean

    def store(self, *values: Expr) -> None:
        """Writes one value for each of the node's results, whatever keepdim says."""
        views, writes = [], []
        for value, spec in zip(values, self.node.out, strict=True):
            kept = TensorSpec(shape=spec.shape, dtype=spec.dtype)
            view = self.context.buffer(self.node.name, kept)
            value = self.ops.cast(value, computed(spec.dtype))
            writes.append(Write(self._place(view), value))
            views.append(view)
        outer = self.space.names(self.kept)
        for write in writes:
            self.context.add(Nest(outer, self.inner, (write,)))
        self.context.values[self.node.name] = tuple(views)

    def _place(self, view: View) -> Address:
        dims = self.kept
        if len(view.dims) != len(dims):  # keepdim leaves empty dimensions behind
            view = View(view.buffer, view.dtype, view.offset, tuple(view.dims[d] for d in dims))
        return self.space.at(view, dims)


def reduced(context: Context, kind: str, x: Expr, any_inner: bool) -> Expr:
    """A reduction, or what it is of a single element."""
    dtype = {"any": DType.BOOL, "all": DType.BOOL, "argmax": DType.INT64, "argmin": DType.INT64}
    out = dtype.get(kind, x.dtype)
    if any_inner:
        return context.pool.make("reduce", out, (x,), word=kind)
    if kind in ("argmax", "argmin"):
        return context.pool.const(0, DType.INT64)
    return x


def second(context: Context, first: Expr, x: Expr) -> Expr:
    """The other result of a `moments` reduction; of one element it is 0, or NaN with it."""
    if first.op == "reduce":
        return context.pool.make("second", first.dtype, (first,))
    return context.ops("sub", x, x)


Meaning = Callable[[Context, Node, Arguments], None]


def _dims(arguments: Arguments, at: int = 1) -> tuple[int, ...] | None:
    return arguments.integers(at, "dim")


def _plain(kind: str) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        reduction = Reduction(context, node, _dims(arguments))
        x = reduction.x
        if kind in ("any", "all"):
            x = context.ops.cast(x, DType.BOOL)
        reduction.store(reduction.reduce(kind, x))

    return meaning


def _sum_like(kind: str) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        reduction = Reduction(context, node, _dims(arguments), node.out[0].dtype)
        reduction.store(reduction.reduce(kind))

    return meaning


def _mean(context: Context, node: Node, arguments: Arguments) -> None:
    reduction = Reduction(context, node, _dims(arguments), node.out[0].dtype)
    reduction.store(reduction.mean())


def _extremum(kind: str) -> Meaning:
    """max.dim and min.dim give values and indices; without a dimension, the value alone."""

    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        if len(node.out) == 1 and arguments.ref(1) is not None:
            raise UnlikeError(f"{node.op} of two tensors")
        reduction = Reduction(context, node, _dims(arguments))
        values = [reduction.reduce(kind)]
        if len(node.out) == 2:
            values.append(reduction.reduce(f"arg{kind}"))
        reduction.store(*values)

    return meaning


def _variance(names: str) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        reduction = Reduction(context, node, _dims(arguments), node.out[0].dtype)
        variance, mean = reduction.moments(_correction(node, arguments))
        if names.startswith("std"):
            variance = context.ops("sqrt", variance)
        reduction.store(variance, mean) if names.endswith("mean") else reduction.store(variance)

    return meaning


def _correction(node: Node, arguments: Arguments) -> float:
    if node.op.endswith("correction"):
        return arguments.number(2, "correction", 1)
    # The older overloads carry a flag in its place.
    flags = [arguments.scalar(at, "unbiased") for at in (1, 2)]
    return 0.0 if False in flags else 1.0


def _logsumexp(context: Context, node: Node, arguments: Arguments) -> None:
    reduction = Reduction(context, node, _dims(arguments), node.out[0].dtype)
    ops = context.ops
    top = reduction.reduce("max")
    # A row of -inf (or one that holds +inf) would make inf - inf of the shift.
    shift = ops("where", ops("isinf", top), 0.0, top)
    total = reduction.reduce("sum", ops("exp", ops("sub", reduction.x, shift)))
    reduction.store(ops("add", ops("log", total), shift))


def _vector_norm(context: Context, node: Node, arguments: Arguments) -> None:
    order = arguments.number(1, "ord", 2)
    reduction = Reduction(context, node, _dims(arguments, 2), node.out[0].dtype)
    reduction.store(_norm(reduction, order))


def _norm(reduction: Reduction, order: float) -> Expr:
    ops, x = reduction.ops, reduction.x
    if order == 2:
        return ops("sqrt", reduction.reduce("sum", ops("square", x)))
    magnitude = ops("abs", x)
    if order == 1:
        return reduction.reduce("sum", magnitude)
    if math.isinf(order):
        return reduction.reduce("max" if order > 0 else "min", magnitude)
    if order == 0:
        return reduction.reduce("sum", ops.cast(ops("ne", x, 0.0), x.dtype))
    return ops("pow", reduction.reduce("sum", ops("pow", magnitude, order)), 1.0 / order)


def _count_nonzero(context: Context, node: Node, arguments: Arguments) -> None:
    reduction = Reduction(context, node, _dims(arguments))
    flags = context.ops.cast(reduction.x, DType.BOOL)
    reduction.store(reduction.reduce("sum", context.ops.cast(flags, DType.INT64)))


def _softmax(log: bool) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        reduction = Reduction(context, node, (arguments.integer(1, "dim"),), node.out[0].dtype)
        ops = context.ops
        shifted = ops("sub", reduction.x, reduction.reduce("max"))
        powers = ops("exp", shifted)
        total = reduction.reduce("sum", powers)
        value = ops("sub", shifted, ops("log", total)) if log else ops("div", powers, total)
        made = context.buffer(node.name, _packed(node.out[0]))
        outer, inner = reduction.space.names(reduction.kept), reduction.inner
        context.add(Nest(outer, inner, (Write(reduction.space.at(made), value),)))
        context.values[node.name] = (made,)

    return meaning


def _scan(kind: str) -> Meaning:
    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        spec = _packed(node.out[0])
        rank = len(spec.shape)
        reduction = Reduction(context, node, (arguments.integer(1, "dim"),), spec.dtype)
        made = context.buffer(node.name, spec)
        value = reduction.x
        if reduction.inner:
            value = context.pool.make("scan", value.dtype, (value,), word=kind)
            context.scans[made.buffer] = node
        where = reduction.space.at(made) if rank else context.space([], ()).at(made)
        outer = reduction.space.names(reduction.kept)
        context.add(Nest(outer, reduction.inner, (Write(where, value),)))
        # Of a running extremum only the values are known here, not where they were.
        context.values[node.name] = (made, *(None for _ in node.out[1:]))

    return meaning


def _packed(spec: TensorSpec) -> TensorSpec:
    """The same tensor, contiguous."""
    return TensorSpec(shape=spec.shape, dtype=spec.dtype)


REDUCTIONS: Mapping[str, Meaning] = {
    "sum": _sum_like("sum"),
    "prod": _sum_like("prod"),
    "mean": _mean,
    "amax": _plain("max"),
    "amin": _plain("min"),
    "any": _plain("any"),
    "all": _plain("all"),
    "argmax": _plain("argmax"),
    "argmin": _plain("argmin"),
    "max": _extremum("max"),
    "min": _extremum("min"),
    "var": _variance("var"),
    "std": _variance("std"),
    "var_mean": _variance("var_mean"),
    "std_mean": _variance("std_mean"),
    "logsumexp": _logsumexp,
    "linalg_vector_norm": _vector_norm,
    "count_nonzero": _count_nonzero,
    "_softmax": _softmax(log=False),
    "_log_softmax": _softmax(log=True),
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "cummax": _scan("max"),
    "cummin": _scan("min"),
}


def _product(left: int, right: int, bias: int | None) -> Meaning:
    """Positions of the factors, and of what is added."""

    def meaning(context: Context, node: Node, arguments: Arguments) -> None:
        a, b = context.value(arguments.tensor(left)), context.value(arguments.tensor(right))
        b = views.unsqueeze(b, 1) if len(b.dims) == 1 else b
        a = views.unsqueeze(a, 0) if len(a.dims) == 1 else a
        if not node.out[0].dtype.is_floating:
            raise UnlikeError("a product of integers")
        if 1 not in (a.shape[-2], b.shape[-1]):
            if not context.lowering.products or computed(node.out[0].dtype) is not DType.FLOAT32:
                raise UnlikeError("a product of two matrices")
        elif bias is not None and _scales(arguments) != _PLAIN:
            raise UnlikeError("a scaled product")
        _reduce(context, node, a, b, bias)

    return meaning


# What a bias is multiplied by, and the product.
_PLAIN = (1.0, 1.0)


def _scales(arguments: Arguments) -> tuple[float, float]:
    return arguments.number(3, "beta", 1), arguments.number(4, "alpha", 1)


def _joined_product(context: Context, node: Node, arguments: Arguments) -> None:
    """A sum of the products of two batches, and what is added: one product, its depth theirs."""
    a, b = context.value(arguments.tensor(1)), context.value(arguments.tensor(2))
    count, rows, depth = a.shape
    turned = views.reshape(views.permute(a, (1, 0, 2)), (rows, count * depth))
    joined = views.reshape(b, (count * depth, b.shape[-1]))
    if not context.lowering.products or computed(node.out[0].dtype) is not DType.FLOAT32:
        raise UnlikeError("a product of two matrices")
    if turned is None or joined is None:
        raise UnlikeError("batches of no stride")
    _reduce(context, node, turned, joined, 0)


def _scaled_product(context: Context, node: Node, arguments: Arguments) -> None:
    """A product of numbers of eight bits, times a number for each factor."""
    a, b, *scales = (context.value(arguments.tensor(at)) for at in range(4))
    eights = context.specs[arguments.tensor(0).node].dtype is DType.FLOAT8_E4M3FN
    more = arguments.ref(4, "bias") or arguments.ref(5, "scale_result")
    if not context.lowering.products or not eights or more is not None:
        raise UnlikeError("a scaled product with more than two numbers")
    if any(prod(scale.shape) != 1 for scale in scales):
        raise UnlikeError("a product scaled row by row")
    _reduce(context, node, a, b, None, scales)


def _reduce(
    context: Context,
    node: Node,
    a: View,
    b: View,
    bias: int | None,
    scales: Sequence[View] = (),
) -> None:
    batch, rows, columns = a.shape[:-2], a.shape[-2], b.shape[-1]
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    a = views.unsqueeze(a, len(batch) + 1)
    b = views.unsqueeze(views.permute(b, order), len(batch))
    shape = (*batch, rows, columns, a.shape[-1])
    given = [a, b]
    beside = [*scales] if bias is None else [context.value(Arguments(node).tensor(bias))]
    for added in beside:
        kept = views.reshape(views.expand(added, node.out[0].shape), shape[:-1])
        if kept is None:
            raise UnlikeError("a bias of no stride")
        given.append(views.unsqueeze(kept, len(shape) - 1))
    space = context.space(given, shape)
    factors = [context.load(where, node.out[0].dtype) for where in space.addresses]
    kind = DType.FLOAT8_E4M3FN if scales else node.out[0].dtype
    value = _multiplied(context, kind, factors[0], factors[1])
    outer, inner = space.names(range(len(shape) - 1)), space.names([len(shape) - 1])
    if inner:
        value = context.pool.make("reduce", value.dtype, (value,), word="sum")
    for scale in factors[2:] if scales else ():
        value = context.ops("mul", value, scale)
    if bias is not None:
        value = _plus_bias(context, value, factors[2], _scales(Arguments(node)))
    made = context.buffer(node.name, TensorSpec(shape=shape[:-1], dtype=node.out[0].dtype))
    value = context.ops.cast(value, computed(node.out[0].dtype))
    where = space.at(made, range(len(shape) - 1))
    context.add(Nest(outer, inner, (Write(where, value),)))
    result = views.reshape(made, node.out[0].shape)
    context.values[node.name] = (made if result is None else result,)


def _multiplied(context: Context, dtype: DType, a: Expr, b: Expr) -> Expr:
    """The product; factors of a product of half-precision matrices say that they are rounded."""
    if not context.lowering.products or dtype is computed(dtype):
        return context.ops("mul", a, b)
    factors = tuple(context.ops.cast(factor, dtype) for factor in (a, b))
    return context.pool.make("mul", computed(dtype), factors)


def _plus_bias(context: Context, value: Expr, bias: Expr, scales: tuple[float, float]) -> Expr:
    """The scaled sum; what is multiplied by zero is not read, NaN or not."""
    beta, alpha = scales
    value = context.ops("mul", value, alpha)
    return context.ops("add", value, context.ops("mul", bias, beta)) if beta else value


PRODUCTS: Mapping[str, Meaning] = {
    "mm": _product(0, 1, None),
    "bmm": _product(0, 1, None),
    "mv": _product(0, 1, None),
    "dot": _product(0, 1, None),
    "addmm": _product(1, 2, 0),
    "addmv": _product(1, 2, 0),
    "addbmm": _joined_product,
    "_scaled_mm": _scaled_product,
}
