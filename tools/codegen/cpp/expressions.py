"""Values and pointwise operators of the intermediate form as C++: types, literals, expressions.

Half-precision floats are computed in float and stored as their bits; integers narrower than 64
bits are computed in int64_t. Expressions are branch-free (bit operators on bools instead of && and
||), so that loops around them vectorise. Not here: loads, reductions and scans, which are printed
by the skeletons.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.codegen.ir.kernel_family import ARITHMETIC, BITWISE, COMPARE
from kernelwright.tools.codegen.ir.loops import computed
from kernelwright.tools.types import DType
from kernelwright.tools.types.graph import REAL

_NAMES: Mapping[DType, str] = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.INT64: "int64_t",
    DType.BOOL: "bool",
}
COMPUTED: Mapping[DType, str] = {dtype: _NAMES[computed(dtype)] for dtype in REAL}

STORED: Mapping[DType, str] = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "uint16_t",
    DType.BFLOAT16: "uint16_t",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT16: "int16_t",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.BOOL: "bool",
}

SIZE_BYTES: Mapping[str, int] = {"double": 8, "float": 4, "int64_t": 8, "bool": 1}

# Words of C++ and names that the skeletons use.
_TAKEN_WORDS = (
    "alignas and asm auto bool break case catch char class compl const constexpr continue "
    "default delete do double else enum explicit export extern false float for friend goto if "
    "inline int long mutable namespace new not operator or private protected public register "
    "return short signed sizeof static struct switch template this throw true try typedef "
    "typename union unsigned using virtual void volatile while xor kw std main j l n "
    "lane_start unit row tile first from to task known totals out segment known_values "
    "INFINITY NAN y0 y1 yn j0 j1 jn linux unix errno assert"
)
_TAKEN = frozenset(_TAKEN_WORDS.split())


def literal(value: float | int | bool, type_: str) -> str:
    """A constant of C++ type `type_`, exactly the value PyTorch would hold in that type."""
    if type_ == "bool":
        return "true" if value else "false"
    if type_ == "int64_t":
        whole = int(value)
        return "INT64_MIN" if whole == -(1 << 63) else f"int64_t({whole})"
    number = _as_float(float(value)) if type_ == "float" else float(value)
    if math.isnan(number):
        return f"{type_}(kw::kNaN)"
    if math.isinf(number):
        return f"{type_}({'-' if number < 0 else ''}kw::kInfinity)"
    text = _shortest(number) + "f" if type_ == "float" else repr(number)
    return f"({text})" if text.startswith("-") else text


def _shortest(number: float) -> str:
    """The shortest decimal that reads back as this float, with a point or an exponent."""
    texts = (f"{number:.{digits}g}" for digits in (6, 7, 8, 9))
    text = next(text for text in texts if _as_float(float(text)) == number)
    return text if "." in text or "e" in text else f"{text}.0"


def _as_float(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def cast(text: str, have: str, want: str) -> str:
    """`text` of computed type `have` as `want`."""
    if have == want:
        return text
    return f"({text} != 0)" if want == "bool" else f"{want}({text})"


def loaded(text: str, dtype: DType) -> str:
    """An element as it lies in memory, converted to its computed type."""
    if dtype is DType.FLOAT16:
        return f"kw::half_to_float({text})"
    if dtype is DType.BFLOAT16:
        return f"kw::bfloat16_to_float({text})"
    kind = COMPUTED[dtype]
    return text if STORED[dtype] == kind else f"{kind}({text})"


def stored(text: str, have: str, dtype: DType) -> str:
    """A value of computed type `have` as it will lie in memory."""
    if dtype is DType.FLOAT16:
        return f"kw::float_to_half({cast(text, have, 'float')})"
    if dtype is DType.BFLOAT16:
        return f"kw::float_to_bfloat16({cast(text, have, 'float')})"
    value = cast(text, have, COMPUTED[dtype])
    return value if STORED[dtype] == COMPUTED[dtype] else f"{STORED[dtype]}({value})"


class Names:
    """Gives every thing of a kernel one identifier, readable and never taken twice."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set(_TAKEN | reserved)

    def __call__(self, kind: str, name: str, suffix: str = "") -> str:
        """The identifier of `name` among things of `kind`; the same one on every call."""
        key = (kind + suffix, name)
        if key not in self._given:
            base = re.sub(r"\W", "_", name).strip("_") or "v"
            base = (f"v{base}" if base[0].isdigit() else base) + suffix
            while base in self._taken:
                base += "_"
            self._taken.add(base)
            self._given[key] = base
        return self._given[key]


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
