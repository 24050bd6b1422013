"""The gate of mish, tanh(softplus(x)), by one exponential and one division.

With n = e^x (e^x + 2): tanh(log(1 + e^x)) = ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1) = n / (n + 2).
All terms are positive, so nothing cancels; beyond 20 both sides are 1 but for 1e-17, and e^x of
that does not overflow. It took a logarithm and a hyperbolic tangent besides: a chain of two mishes
over 0.53 billion elements took 1.9 ms on an H200, where a copy takes 1.0.
"""

from __future__ import annotations

from typing import Protocol

from kernelwright.tools.codegen.lower.nests.expr import Expr, Number

_BEYOND = 20.0


class MakesExpressions(Protocol):
    """What makes a pointwise expression of an operator and its arguments."""

    def __call__(self, op: str, *args: Expr | Number) -> Expr:
        """The operator on expressions and numbers."""
        ...


def tanh_of_softplus(ops: MakesExpressions, softplus: Expr) -> Expr | None:
    """Its hyperbolic tangent; None where `softplus` is something else.

    As PyTorch has it: x itself above a threshold, else log1p(exp(x)).
    """
    if softplus.op != "where":
        return None
    above, x, soft = softplus.args
    if above.op != "gt" or above.args[0] is not x or not _beyond(above.args[1]):
        return None
    power = soft.args[0] if soft.op == "log1p" else None
    if power is None or power.op != "exp" or power.args[0] is not x:
        return None
    grown = ops("exp", ops("minimum", x, _BEYOND))
    both = ops("mul", grown, ops("add", grown, 2.0))
    return ops("div", both, ops("add", both, 2.0))


def _beyond(threshold: Expr) -> bool:
    value = threshold.value
    return threshold.op == "const" and isinstance(value, float | int) and value >= _BEYOND
