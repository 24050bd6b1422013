"""Pointwise operators of the intermediate form as C++ expressions over the prelude's functions."""

from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.codegen.cuda.printing.types import literal, value_type
from kernelwright.tools.codegen.ir import OPERATORS, Stmt
from kernelwright.tools.codegen.ir.c_operators import ARITHMETIC, BITWISE, COMPARE
from kernelwright.tools.codegen.ir.types import computed
from kernelwright.tools.types import DType

_INFIX: Mapping[str, str] = {**ARITHMETIC, **COMPARE, **BITWISE}
_COMPARISONS = frozenset(COMPARE)
_PREDICATES = frozenset({"isnan", "isinf"})
_LOGICAL: Mapping[str, str] = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}
_RENAMED: Mapping[str, str] = {"fma": "multiply_add", "isnan": "is_nan", "isinf": "is_infinite"}


def convert(text: str, have: DType, want: DType) -> str:
    """`text` of type `have` in the type that `want` is computed in."""
    if computed(have) is computed(want):
        return text
    return f"kw::to<{value_type(want)}>({text})"


def expression(stmt: Stmt, args: Sequence[tuple[str, DType]], *, alone: bool = False) -> str:
    """The C++ expression of a pointwise statement, a cast or a constant.

    Args:
        stmt: The statement.
        args: Text and type of each argument.
        alone: Whether it is a product that nothing may be fused with.

    Raises:
        ValueError: When the operator is not one of `OPERATORS`.
    """
    if stmt.op == "const":
        return literal(stmt.value, stmt.dtype)
    if stmt.op == "cast":
        return convert(*args[0], stmt.dtype)
    if stmt.op not in OPERATORS or len(args) != OPERATORS[stmt.op]:
        raise ValueError(f"{stmt.name}: no operator {stmt.op!r} with {len(args)} arguments")
    if alone and computed(stmt.dtype) in (DType.FLOAT32, DType.FLOAT64):
        parts = _converted(stmt, args)
        return f"kw::product({parts[0]}, {parts[-1]})"
    return _printer(stmt.op)(stmt, args)


def _printer(op: str) -> Callable[[Stmt, Sequence[tuple[str, DType]]], str]:
    if op in _LOGICAL or op == "logical_not":
        return _logical
    if op == "where":
        return _where
    if op in ("div", "reciprocal", "square", "neg", "bitwise_not"):
        return _special
    return _infix if op in _INFIX else _call


def _type_of_arguments(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> DType:
    """Comparisons meet in the widest argument's type; everything else computes in its own."""
    if stmt.op not in _COMPARISONS | _PREDICATES:
        return stmt.dtype
    order = (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64)
    return max((computed(dtype) for _, dtype in args), key=order.index)


def _converted(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> list[str]:
    meet = _type_of_arguments(stmt, args)
    return [convert(text, dtype, meet) for text, dtype in args]


def _infix(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    left, right = _converted(stmt, args)
    text = f"{left} {_INFIX[stmt.op]} {right}"
    # C++ promotes bool arithmetic to int; the result is a bool again.
    return f"bool({text})" if stmt.dtype is DType.BOOL and stmt.op not in _COMPARISONS else text


def _logical(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    parts = [convert(text, dtype, DType.BOOL) for text, dtype in args]
    text = f"!{parts[0]}" if stmt.op == "logical_not" else f" {_LOGICAL[stmt.op]} ".join(parts)
    return convert(f"({text})", DType.BOOL, stmt.dtype)


def _where(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    condition = convert(*args[0], DType.BOOL)
    chosen, other = (convert(text, dtype, stmt.dtype) for text, dtype in args[1:])
    return f"{condition} ? {chosen} : {other}"


def _special(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    parts = _converted(stmt, args)
    if stmt.op == "div":
        # Integers have no division of their own here; ATen's integer quotient truncates.
        return f"kw::truncdiv({', '.join(parts)})" if _integral(stmt) else " / ".join(parts)
    if stmt.op == "reciprocal":
        return f"{literal(1, stmt.dtype)} / {parts[0]}"
    if stmt.op == "square":
        return f"{parts[0]} * {parts[0]}"
    if stmt.op == "neg":
        return f"-{parts[0]}"
    return f"!{parts[0]}" if stmt.dtype is DType.BOOL else f"~{parts[0]}"


def _call(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    return f"kw::{_RENAMED.get(stmt.op, stmt.op)}({', '.join(_converted(stmt, args))})"


def _integral(stmt: Stmt) -> bool:
    return computed(stmt.dtype) is DType.INT64
