"""Pointwise operators as C++ expressions.

Expressions are branch-free (bit operators on bools instead of && and ||), so that loops around
them vectorise. Loads, reductions and scans are printed by the skeletons.
"""

from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.codegen.cpp.spelling import COMPUTED, cast
from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.codegen.ir.c_operators import ARITHMETIC, BITWISE, COMPARE
from kernelwright.tools.types import DType

_INFIX: Mapping[str, str] = {**ARITHMETIC, "div": "/"}
_LOGICAL: Mapping[str, str] = {"logical_and": "&", "logical_or": "|", "logical_xor": "!="}
_ON_BOOL: Mapping[str, str] = {
    "add": "|",
    "mul": "&",
    "maximum": "|",
    "minimum": "&",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "!=",
}
_WHOLE = frozenset({"floor", "ceil", "round", "trunc"})
PREDICATES = frozenset({*COMPARE, *_LOGICAL, "logical_not", "isnan", "isinf"})
_HEAVY_WORDS = (
    "pow atan2 fmod remainder floordiv truncdiv hypot exp exp2 expm1 log log2 log10 log1p sin "
    "cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma "
    "one_plus_erf one_plus_tanh exp_below"
)
HEAVY = frozenset(_HEAVY_WORDS.split())
DIVIDES = frozenset({"div", "reciprocal", "sqrt", "rsqrt"})

_POWERS: Mapping[float, Callable[[str], str]] = {
    0.5: lambda x: f"kw::sqrt({x})",
    -0.5: lambda x: f"kw::rsqrt({x})",
    1.0: lambda x: x,
    -1.0: lambda x: f"kw::reciprocal({x})",
    2.0: lambda x: f"kw::square({x})",
    3.0: lambda x: f"{x} * kw::square({x})",
    -2.0: lambda x: f"kw::reciprocal(kw::square({x}))",
}


def computed_type(stmt: Stmt) -> str:
    """The C++ type of a statement's value."""
    return "bool" if stmt.op in PREDICATES else COMPUTED[stmt.dtype]


def expression(stmt: Stmt, args: Sequence[str], types: Sequence[str], exponent: object) -> str:
    """The C++ expression of a pointwise statement.

    Args:
        stmt: A pointwise statement or a cast.
        args: Its arguments, as identifiers or literals.
        types: Their computed types.
        exponent: For `pow`, the second argument's value where it is a constant, else None.

    Raises:
        ValueError: When the operator is unknown.
    """
    op, want = stmt.op, computed_type(stmt)
    if op == "cast":
        return _narrowed(cast(args[0], types[0], want), stmt.dtype)
    if op == "where":
        chosen = [cast(a, t, want) for a, t in zip(args[1:], types[1:], strict=True)]
        return f"{cast(args[0], types[0], 'bool')} ? {chosen[0]} : {chosen[1]}"
    if op in PREDICATES:
        return _predicate(op, args, types)
    values = [cast(a, t, want) for a, t in zip(args, types, strict=True)]
    if want == "bool":
        return _boolean(op, values)
    if op == "pow" and want != "int64_t" and isinstance(exponent, (int, float)):
        special = _POWERS.get(float(exponent))
        if special is not None:
            return special(values[0])
    return _arithmetic(op, values, want)


def _predicate(op: str, args: Sequence[str], types: Sequence[str]) -> str:
    if op in COMPARE:
        return f"{args[0]} {COMPARE[op]} {args[1]}"
    if op in ("isnan", "isinf"):
        number = cast(args[0], types[0], "int64_t") if types[0] == "bool" else args[0]
        return f"kw::is_{op[2:]}({number})"
    flags = [cast(a, t, "bool") for a, t in zip(args, types, strict=True)]
    if op == "logical_not":
        return f"!{flags[0]}"
    return f"bool({flags[0]} {_LOGICAL[op]} {flags[1]})"


def _boolean(op: str, values: Sequence[str]) -> str:
    if op in _ON_BOOL:
        return f"bool({values[0]} {_ON_BOOL[op]} {values[1]})"
    if op in ("bitwise_not", "logical_not"):
        return f"!{values[0]}"
    if op in ("abs", "relu", "sign"):
        return values[0]
    raise ValueError(f"operator {op!r} is not defined on bool")


def _arithmetic(op: str, values: Sequence[str], want: str) -> str:
    if op in _INFIX:
        return f"{values[0]} {_INFIX[op]} {values[1]}"
    if op == "neg":
        return f"-{values[0]}"
    if op == "fma":
        return f"{values[0]} * {values[1]} + {values[2]}"
    if op in BITWISE:
        return f"{values[0]} {BITWISE[op]} {values[1]}"
    if op == "bitwise_not":
        return f"~{values[0]}"
    if op in _WHOLE and want == "int64_t":
        return values[0]
    if op in _FUNCTIONS:
        return f"kw::{op}({', '.join(values)})"
    raise ValueError(f"operator {op!r} has no C++ expression")


def _narrowed(text: str, dtype: DType) -> str:
    """What a type narrower than the one computed in can hold of a value."""
    if dtype is DType.FLOAT16:
        return f"kw::half_to_float(kw::float_to_half({text}))"
    if dtype is DType.BFLOAT16:
        return f"kw::bfloat16_to_float(kw::float_to_bfloat16({text}))"
    if dtype in (DType.INT32, DType.INT16, DType.INT8, DType.UINT8):
        return f"int64_t({dtype.value}_t({text}))"
    return text


_FUNCTION_WORDS = (
    "pow atan2 fmod remainder floordiv truncdiv maximum minimum copysign hypot abs sign "
    "reciprocal sqrt rsqrt square exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos "
    "atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc lgamma floor ceil round trunc "
    "relu shift_left shift_right one_plus_erf one_plus_tanh exp_below"
)
_FUNCTIONS = frozenset(_FUNCTION_WORDS.split())
