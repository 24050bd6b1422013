"""ATen's pointwise operators as expressions.

Composite ones, activations among them, are written out, with ATen's formula where there is a
choice, so that a chain of any of them is one expression. Operators missing here go to the library.
`PointwiseCall` hands an operator's arguments over, already in the type PyTorch computes in; a
`Meaning` makes the expression of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.tools.codegen.lower.nests.context import Arguments, UnlikeError
from kernelwright.tools.codegen.lower.nests.expressions import Expr
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.types import DType, Ref, Scalar


@dataclass(frozen=True)
class PointwiseCall:
    """One node's arguments: tensors loaded, `work` the promoted type of the operands.

    `out` is the type that the result is computed in.
    """

    ops: Ops
    arguments: Arguments
    loaded: Mapping[str, Expr]
    work: DType
    out: DType

    def raw(self, at: int, name: str = "") -> Expr:
        """A tensor argument in its own type."""
        return self.loaded[self.arguments.tensor(at, name).node]

    def operand(self, at: int, name: str = "", dtype: DType | None = None) -> Expr:
        """A tensor or number, in the type worked in."""
        dtype = self.work if dtype is None else dtype
        found = self.arguments.get(at, name)
        if isinstance(found, Ref):
            return self.ops.cast(self.loaded[found.node], dtype)
        if isinstance(found, Scalar) and isinstance(found.value, bool | int | float):
            return self.ops.pool.const(found.value, dtype)
        raise UnlikeError(f"{self.arguments.node.name}: argument {at} is neither tensor nor number")

    def has(self, at: int, name: str = "") -> bool:
        """Whether the argument is given and not None."""
        found = self.arguments.get(at, name)
        return found is not None and not (isinstance(found, Scalar) and found.value is None)

    def number(self, at: int, name: str = "", default: float = 0.0) -> float:
        """A plain number."""
        return self.arguments.number(at, name, default)


Meaning = Callable[[PointwiseCall], Expr]


def unary(op: str) -> Meaning:
    """One of our operators on the first argument."""
    return lambda call: call.ops(op, call.operand(0))


def binary(op: str) -> Meaning:
    """One of our operators on the first two."""
    return lambda call: call.ops(op, call.operand(0), call.operand(1))


def of_x(formula: Callable[[Ops, Expr], Expr]) -> Meaning:
    """A formula of the first argument alone."""
    return lambda call: formula(call.ops, call.operand(0))


def _silu(ops: Ops, x: Expr) -> Expr:
    return ops("mul", x, ops("sigmoid", x))


def _gelu(call: PointwiseCall) -> Expr:
    ops, x = call.ops, call.operand(0)
    if call.arguments.scalar(1, "approximate", "none") == "tanh":
        cube = ops("mul", ops("mul", x, x), x)
        within = ops("mul", ops("add", x, ops("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        half = ops("mul", x, 0.5)
        return ops("mul", half, ops("add", ops("tanh", within), 1.0))
    half = ops("mul", x, 0.5)
    return ops("mul", half, ops("add", ops("erf", ops("mul", x, math.sqrt(0.5))), 1.0))


def _leaky_relu(call: PointwiseCall) -> Expr:
    x = call.operand(0)
    return call.ops(
        "where",
        call.ops("gt", x, 0.0),
        x,
        call.ops("mul", x, call.number(1, "negative_slope", 0.01)),
    )


def _prelu(call: PointwiseCall) -> Expr:
    x = call.operand(0)
    return call.ops("where", call.ops("gt", x, 0.0), x, call.ops("mul", x, call.operand(1)))


def _elu(call: PointwiseCall) -> Expr:
    ops, x = call.ops, call.operand(0)
    alpha, scale = call.number(1, "alpha", 1.0), call.number(2, "scale", 1.0)
    low = ops("expm1", ops("mul", x, call.number(3, "input_scale", 1.0)))
    return ops("where", ops("gt", x, 0.0), ops("mul", x, scale), ops("mul", low, alpha * scale))


def _celu(call: PointwiseCall) -> Expr:
    ops, x, alpha = call.ops, call.operand(0), call.number(1, "alpha", 1.0)
    low = ops("mul", ops("expm1", ops("div", x, alpha)), alpha)
    return ops("where", ops("gt", x, 0.0), x, low)


def _selu(ops: Ops, x: Expr) -> Expr:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    low = ops("mul", ops("expm1", x), alpha * scale)
    return ops("where", ops("gt", x, 0.0), ops("mul", x, scale), low)


def _softplus_of(ops: Ops, x: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    scaled = ops("mul", x, beta)
    soft = ops("div", ops("log1p", ops("exp", scaled)), beta)
    return ops("where", ops("gt", scaled, threshold), x, soft)


def _softplus(call: PointwiseCall) -> Expr:
    beta, threshold = call.number(1, "beta", 1.0), call.number(2, "threshold", 20.0)
    return _softplus_of(call.ops, call.operand(0), beta, threshold)


def _mish(ops: Ops, x: Expr) -> Expr:
    return ops("mul", x, ops("tanh", _softplus_of(ops, x)))


def _hardsigmoid(ops: Ops, x: Expr) -> Expr:
    return ops("div", ops("minimum", ops("maximum", ops("add", x, 3.0), 0.0), 6.0), 6.0)


def _hardswish(ops: Ops, x: Expr) -> Expr:
    gate = ops("minimum", ops("maximum", ops("add", x, 3.0), 0.0), 6.0)
    return ops("div", ops("mul", x, gate), 6.0)


def _log_sigmoid(ops: Ops, x: Expr) -> Expr:
    tail = ops("log1p", ops("exp", ops("neg", ops("abs", x))))
    return ops("sub", ops("minimum", x, 0.0), tail)


def _hardtanh(call: PointwiseCall) -> Expr:
    low, high = call.number(1, "min_val", -1.0), call.number(2, "max_val", 1.0)
    return call.ops("minimum", call.ops("maximum", call.operand(0), low), high)


def _threshold(call: PointwiseCall) -> Expr:
    x = call.operand(0)
    return call.ops("where", call.ops("le", x, call.number(1)), call.number(2), x)


def _hardshrink(call: PointwiseCall) -> Expr:
    x, bound = call.operand(0), call.number(1, "lambd", 0.5)
    inside = call.ops("le", call.ops("abs", x), bound)
    return call.ops("where", inside, 0.0, x)


def _softshrink(call: PointwiseCall) -> Expr:
    ops, x, bound = call.ops, call.operand(0), call.number(1, "lambd", 0.5)
    # x * 0 rather than 0, so that NaN stays NaN.
    low = ops("where", ops("lt", x, -bound), ops("add", x, bound), ops("mul", x, 0.0))
    return ops("where", ops("gt", x, bound), ops("sub", x, bound), low)


ACTIVATIONS: Mapping[str, Meaning] = {
    "silu": of_x(_silu),
    "gelu": _gelu,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "elu": _elu,
    "celu": _celu,
    "selu": of_x(_selu),
    "softplus": _softplus,
    "mish": of_x(_mish),
    "hardsigmoid": of_x(_hardsigmoid),
    "hardswish": of_x(_hardswish),
    "log_sigmoid": of_x(_log_sigmoid),
    "relu6": of_x(lambda ops, x: ops("minimum", ops("maximum", x, 0.0), 6.0)),
    "hardtanh": _hardtanh,
    "threshold": _threshold,
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
}


def _add(call: PointwiseCall) -> Expr:
    if call.work is DType.BOOL:
        return call.ops("logical_or", call.operand(0), call.operand(1))
    other = call.ops("mul", call.operand(1), call.number(2, "alpha", 1))
    return call.ops("add", call.operand(0), other)


def _sub(call: PointwiseCall) -> Expr:
    other = call.ops("mul", call.operand(1), call.number(2, "alpha", 1))
    return call.ops("sub", call.operand(0), other)


def _rsub(call: PointwiseCall) -> Expr:
    mine = call.ops("mul", call.operand(0), call.number(2, "alpha", 1))
    return call.ops("sub", call.operand(1), mine)


def _mul(call: PointwiseCall) -> Expr:
    op = "logical_and" if call.work is DType.BOOL else "mul"
    return call.ops(op, call.operand(0), call.operand(1))


def _div(call: PointwiseCall) -> Expr:
    mode = call.arguments.scalar(2, "rounding_mode")
    if mode is None:
        return call.ops("div", call.operand(0, dtype=call.out), call.operand(1, dtype=call.out))
    if mode not in ("trunc", "floor"):
        raise UnlikeError(f"rounding mode {mode}")
    return call.ops(f"{mode}div", call.operand(0), call.operand(1))


def _pow(call: PointwiseCall) -> Expr:
    return call.ops("pow", call.operand(0, dtype=call.out), call.operand(1, dtype=call.out))


def _abs(call: PointwiseCall) -> Expr:
    x = call.operand(0)
    return x if x.dtype is DType.BOOL else call.ops("abs", x)


def _clamped(call: PointwiseCall, low: int | None, high: int | None) -> Expr:
    x = call.operand(0)
    if low is not None and call.has(low, "min"):
        x = call.ops("maximum", x, call.operand(low, "min"))
    if high is not None and call.has(high, "max"):
        x = call.ops("minimum", x, call.operand(high, "max"))
    return x


def _addcmul(call: PointwiseCall) -> Expr:
    product = call.ops("mul", call.operand(1), call.operand(2))
    scaled = call.ops("mul", product, call.number(3, "value", 1))
    return call.ops("add", call.operand(0), scaled)


def _addcdiv(call: PointwiseCall) -> Expr:
    quotient = call.ops("div", call.operand(1), call.operand(2))
    scaled = call.ops("mul", quotient, call.number(3, "value", 1))
    return call.ops("add", call.operand(0), scaled)


def _lerp(call: PointwiseCall) -> Expr:
    ops = call.ops
    start, end, weight = call.operand(0), call.operand(1), call.operand(2)
    span = ops("sub", end, start)
    near = ops("add", start, ops("mul", weight, span))
    far = ops("sub", end, ops("mul", span, ops("sub", 1.0, weight)))
    return ops("where", ops("lt", ops("abs", weight), 0.5), near, far)


def _where(call: PointwiseCall) -> Expr:
    condition = call.ops.cast(call.raw(0), DType.BOOL)
    return call.ops(
        "where", condition, call.operand(1, dtype=call.out), call.operand(2, dtype=call.out)
    )


def _masked_fill(call: PointwiseCall) -> Expr:
    mask = call.ops.cast(call.raw(1), DType.BOOL)
    return call.ops("where", mask, call.operand(2, dtype=call.out), call.operand(0, dtype=call.out))


def _logical(op: str) -> Meaning:
    def meaning(call: PointwiseCall) -> Expr:
        count = 1 if op == "logical_not" else 2
        return call.ops(op, *(call.operand(at, dtype=DType.BOOL) for at in range(count)))

    return meaning


def _isfinite(ops: Ops, x: Expr) -> Expr:
    return ops("lt", ops("abs", x), math.inf)


def _nan_to_num(call: PointwiseCall) -> Expr:
    ops, x = call.ops, call.operand(0)
    largest = 1.7976931348623157e308 if x.dtype is DType.FLOAT64 else 3.4028234663852886e38
    high, low = call.number(2, "posinf", largest), call.number(3, "neginf", -largest)
    kept = ops("where", ops("eq", x, math.inf), high, ops("where", ops("eq", x, -math.inf), low, x))
    return ops("where", ops("isnan", x), call.number(1, "nan", 0.0), kept)


def _xlogy(call: PointwiseCall) -> Expr:
    ops, x, y = call.ops, call.operand(0), call.operand(1)
    product = ops("where", ops("eq", x, 0.0), 0.0, ops("mul", x, ops("log", y)))
    return ops("where", ops("isnan", y), math.nan, product)


def _logaddexp(call: PointwiseCall) -> Expr:
    ops, a, b = call.ops, call.operand(0), call.operand(1)
    tail = ops("log1p", ops("exp", ops("neg", ops("abs", ops("sub", a, b)))))
    total = ops("add", ops("maximum", a, b), tail)
    same = ops("logical_and", ops("isinf", a), ops("eq", a, b))
    return ops("where", same, a, total)


def _logit(call: PointwiseCall) -> Expr:
    ops, x = call.ops, call.operand(0)
    if call.has(1, "eps"):
        eps = call.number(1, "eps")
        x = ops("minimum", ops("maximum", x, eps), 1 - eps)
    return ops("log", ops("div", x, ops("sub", 1.0, x)))


def _cast(call: PointwiseCall) -> Expr:
    return call.ops.cast(call.raw(0), call.out)


def _copy(call: PointwiseCall) -> Expr:
    return call.ops.cast(call.raw(1), call.out)


def _bitwise(op: str) -> Meaning:
    def meaning(call: PointwiseCall) -> Expr:
        word = op.replace("bitwise", "logical") if call.work is DType.BOOL else op
        count = 1 if op == "bitwise_not" else 2
        return call.ops(word, *(call.operand(at) for at in range(count)))

    return meaning


_SAME_UNARY_WORDS = """
    neg sign sqrt rsqrt reciprocal square exp exp2 expm1 log log2 log10 log1p sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil trunc relu
    isnan isinf
"""
_SAME_UNARY = tuple(_SAME_UNARY_WORDS.split())
_SAME_BINARY_WORDS = """
    atan2 fmod remainder maximum minimum copysign hypot eq ne lt le gt ge
"""
_SAME_BINARY = tuple(_SAME_BINARY_WORDS.split())

# These make floating results of integer arguments.
_TO_FLOAT_WORDS = """
    sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh
    cosh tanh asinh acosh atanh sigmoid erf erfc lgamma atan2 hypot copysign logit xlogy
"""
TO_FLOAT = frozenset(_TO_FLOAT_WORDS.split())

POINTWISE: Mapping[str, Meaning] = {
    **{name: unary(name) for name in _SAME_UNARY},
    **{name: binary(name) for name in _SAME_BINARY},
    **{
        name: _logical(name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")
    },
    **{
        name: _bitwise(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
    },
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "true_divide": _div,
    "floor_divide": binary("floordiv"),
    "pow": _pow,
    "abs": _abs,
    "sgn": unary("sign"),
    "round": unary("round"),
    "frac": of_x(lambda ops, x: ops("sub", x, ops("trunc", x))),
    **ACTIVATIONS,
    "clamp": lambda call: _clamped(call, 1, 2),
    "clip": lambda call: _clamped(call, 1, 2),
    "clamp_min": lambda call: _clamped(call, 1, None),
    "clamp_max": lambda call: _clamped(call, None, 1),
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "where": _where,
    "masked_fill": _masked_fill,
    "isfinite": of_x(_isfinite),
    "nan_to_num": _nan_to_num,
    "xlogy": _xlogy,
    "logaddexp": _logaddexp,
    "logit": _logit,
    "_to_copy": _cast,
    "to": _cast,
    "convert_element_type": _cast,
    "copy": _copy,
    "__lshift__": binary("shift_left"),
    "__rshift__": binary("shift_right"),
    "bitwise_left_shift": binary("shift_left"),
    "bitwise_right_shift": binary("shift_right"),
}
