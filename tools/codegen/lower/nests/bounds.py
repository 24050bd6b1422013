"""Bounds that hold for every value of an expression, NaN apart: they tell idle operators.

`relu` of something never negative, a clamp behind a tighter clamp, a hard tanh of a tanh: each
gives its argument back, bit for bit, NaN included. What is not known here has no bounds.
"""

from __future__ import annotations

import math

from kernelwright.tools.codegen.lower.nests.expr import Expr

_NEVER_NEGATIVE = frozenset({"exp", "exp2", "square", "abs", "sqrt", "relu", "cosh"})
_WITHIN = {
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "erfc": (0.0, 2.0),
}
_ANY = (-math.inf, math.inf)
# A longer chain than this is not looked through: every operator asks once.
DEPTH = 6


def bounds(expr: Expr, depth: int = DEPTH) -> tuple[float, float]:
    """The least and the largest value that an expression can have, if it is no NaN."""
    if expr.op == "const" and expr.value is not None and not math.isnan(expr.value):
        return float(expr.value), float(expr.value)
    if expr.op in _WITHIN:
        return _WITHIN[expr.op]
    if expr.op in _NEVER_NEGATIVE:
        return 0.0, math.inf
    if expr.op in ("maximum", "minimum") and depth:
        (a, b), (c, d) = (bounds(arg, depth - 1) for arg in expr.args)
        return (max(a, c), max(b, d)) if expr.op == "maximum" else (min(a, c), min(b, d))
    return _ANY


def idle_extremum(op: str, x: Expr, limit: Expr) -> bool:
    """Whether a maximum or minimum with a constant gives `x` back."""
    if limit.op != "const" or limit.value is None or math.isnan(limit.value):
        return False
    low, high = bounds(x)
    return low >= limit.value if op == "maximum" else high <= limit.value
