"""What an operator is given when its expression is made.

`PointwiseCall` hands an operator's arguments over, already in the type PyTorch computes in; a
`Meaning` makes the expression of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.tools.codegen.lower.nests.arguments import Arguments, UnlikeError
from kernelwright.tools.codegen.lower.nests.expr import Expr
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
