"""ATen's composite activations, written out with ATen's formula where there is a choice."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernelwright.tools.codegen.lower.nests.expr import Expr
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.codegen.lower.operators.meaning import Meaning, PointwiseCall, of_x


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
