"""How values of the intermediate form are spelt in C++: types, literals, identifiers.

Half-precision floats are computed in float and stored as their bits; integers narrower than 64
bits are computed in int64_t. What is done with values is in `expressions`.
"""

import math
import re
import struct
from collections.abc import Mapping

from kernelwright.tools.codegen.ir.types import computed
from kernelwright.tools.types import DType

_NAMES: Mapping[DType, str] = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.INT64: "int64_t",
    DType.BOOL: "bool",
}
COMPUTED: Mapping[DType, str] = {dtype: _NAMES[computed(dtype)] for dtype in DType}

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
