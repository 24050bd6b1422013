"""How element types and constants are written in CUDA C++.

The host's C++ (`cpp.spelling`) has types and literals of its own: it keeps half precision as bits,
its integers are int64_t, and a constant stands there for exactly one float.
"""

import math

from kernelwright.tools.codegen.ir.types import computed
from kernelwright.tools.types import DType

# Spelled as a kernel's signature must spell them.
C_TYPES: dict[DType, str] = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "__half",
    DType.BFLOAT16: "__nv_bfloat16",
    DType.INT64: "long long",
    DType.INT32: "int",
    DType.INT16: "short",
    DType.INT8: "signed char",
    DType.UINT8: "unsigned char",
    DType.BOOL: "bool",
}


def c_type(dtype: DType) -> str:
    """The C++ name of a storage type."""
    return C_TYPES[dtype]


def value_type(dtype: DType) -> str:
    """The C++ name of the type that values of `dtype` are computed in."""
    return C_TYPES[computed(dtype)]


def literal(value: float | int | bool | None, dtype: DType) -> str:
    """A constant as C++ text, in the type that `dtype` is computed in."""
    kind = computed(dtype)
    if kind is DType.BOOL:
        return "true" if value else "false"
    if kind is DType.INT64:
        return _integer(int(value or 0))
    return _floating(float(value or 0), "f" if kind is DType.FLOAT32 else "")


def _integer(value: int) -> str:
    if value <= -(1 << 63):  # the literal of the smallest integer does not exist in C++
        return "(-9223372036854775807LL - 1)"
    return f"{value}LL"


def _floating(value: float, suffix: str) -> str:
    name = "float" if suffix else "double"
    if math.isnan(value):
        return f"{name}(NAN)"
    if math.isinf(value):
        return f"kw::{'greatest' if value > 0 else 'least'}<{name}>()"
    # A double past the range of float is an infinity once it is converted, as in ATen.
    if suffix and abs(value) > 3.4028235677973366e38:
        return _floating(math.copysign(math.inf, value), suffix)
    text = repr(value)
    return f"{text if any(mark in text for mark in '.en') else text + '.0'}{suffix}"
