"""Prints the statements of what stands around a product, one value at a time.

Values are named `v_<statement>`. What a chain spells out and the header has as one function (gelu)
is printed as that, and divisions have no branch, so that a thread's results overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, sqrt

from kernelwright.tools.codegen.cuda.printing.expressions import (
    c_type,
    convert,
    expression,
    literal,
    value_type,
)
from kernelwright.tools.codegen.cuda.printing.nest import nest_of
from kernelwright.tools.codegen.cuda.printing.vectors import narrow_values
from kernelwright.tools.codegen.ir import Loop, Stmt, Store, results
from kernelwright.tools.codegen.ir.rewrites import rounded_alone
from kernelwright.tools.types import DType

# Operators that round to what lies in memory, which no operator of a module's own does.
_ROUNDING = {f"to_{one.value}": one for one in (DType.FLOAT16, DType.BFLOAT16)}


class StatementPrinter:
    """Prints statements of one loop.

    Args:
        loop: The loop that a contraction was read off.
    """

    def __init__(self, loop: Loop) -> None:
        self._types = {name: stmt.dtype for stmt in loop.body for name in results(stmt)}
        self._known = {name: stmt for stmt in loop.body for name in results(stmt)}
        self._alone = rounded_alone(loop)
        self._narrow = narrow_values(nest_of(loop))

    def type_of(self, stmt: Stmt) -> str:
        """The C++ type of a value; positions that fit are of 32 bits."""
        return "int" if stmt.name in self._narrow else value_type(stmt.dtype)

    def statement(self, stmt: Stmt) -> str:
        """A pointwise statement over values by name."""
        if stmt.name in self._narrow and stmt.op == "const":
            return str(stmt.value)
        if (inside := self._inside_of_gelu(stmt)) is not None:
            return f"kw::gelu(v_{inside})"
        if stmt.op in _ROUNDING:
            return f"kw::to<float>(kw::to<{c_type(_ROUNDING[stmt.op])}>(v_{stmt.args[0]}))"
        args = [(self._argument(stmt, name), self._types[name]) for name in stmt.args]
        if stmt.op == "div" and stmt.dtype is DType.FLOAT32:
            return self._quotient(stmt, [convert(*arg, DType.FLOAT32) for arg in args])
        return expression(stmt, args, alone=stmt.name in self._alone)

    def _quotient(self, stmt: Stmt, parts: Sequence[str]) -> str:
        """A division without a branch; of a constant's inverse nothing is left to compute."""
        by = self._known.get(stmt.args[1])
        if by is not None and by.op == "const" and by.value and 1e-30 < abs(by.value) < 1e30:
            return f"kw::quotient({parts[0]}, {parts[1]}, {literal(1 / by.value, stmt.dtype)})"
        return f"kw::quotient({', '.join(parts)})"

    def _inside_of_gelu(self, stmt: Stmt) -> str | None:
        """The value x of a statement (x / 2) (1 + erf(x / sqrt 2)); None of any other."""
        for half, one_more in (self._operands(stmt, "mul"), self._operands(stmt, "mul")[::-1]):
            x = self._beside(half, "mul", 0.5)
            erf = self._beside(one_more, "add", 1.0)
            if x and erf and self._known[erf].op == "erf":
                return x if self._beside(self._known[erf].args[0], "mul", sqrt(0.5)) == x else None
        return None

    def read_by(self, stmt: Stmt) -> set[str]:
        """The statements that one is computed from, as it is printed."""
        if (inside := self._inside_of_gelu(stmt)) is not None:
            return {inside}
        strides = stmt.access.strides if stmt.access is not None else ()
        return {*stmt.args, *(stride.by for stride in strides)}

    def _operands(self, stmt: Stmt, op: str) -> tuple[str, str]:
        """Both of a float32 statement of two; empty names of any other."""
        if stmt.op != op or stmt.dtype is not DType.FLOAT32:
            return "", ""
        return stmt.args[0], stmt.args[1]

    def _beside(self, name: str, op: str, constant: float) -> str:
        """What a statement adds to, or multiplies by, a constant; "" where it does neither."""
        if name not in self._known:
            return ""
        for value, other in (operands := self._operands(self._known[name], op), operands[::-1]):
            const = self._known[other].value if other and self._known[other].op == "const" else None
            if const is not None and isclose(const, constant, rel_tol=1e-6):
                return value
        return ""

    def _argument(self, stmt: Stmt, name: str) -> str:
        """A value; one of 32 bits becomes wide where it meets wide ones."""
        integers = [one for one in stmt.args if self._types[one] is DType.INT64]
        together = stmt.dtype is not DType.INT64 and all(one in self._narrow for one in integers)
        stays = stmt.name in self._narrow or together or name not in self._narrow
        return f"v_{name}" if stays else f"(long long)v_{name}"

    def condition(self, load: Stmt) -> str:
        """Where a load on a condition reads."""
        return convert(f"v_{load.args[0]}", self._types[load.args[0]], DType.BOOL)

    def stored(self, store: Store) -> str:
        """The value of a store in the type of memory."""
        have, text = value_type(self._types[store.value]), f"v_{store.value}"
        kind = c_type(store.access.dtype)
        return text if have == kind else f"kw::to<{kind}>({text})"
