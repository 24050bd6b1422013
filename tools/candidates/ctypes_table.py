"""Which C types may stand in a kernel's signature, and what the plan may pass for them.

A pointer takes tensors of the listed element types; a scalar takes a number that fits. Half
precision has no portable C type on the host, so its bits travel as `uint16_t` there.
"""

import re
from collections.abc import Mapping

from kernelwright.tools.types import DType, Value

_HALVES = (DType.FLOAT16, DType.BFLOAT16)

POINTEES: Mapping[str, tuple[DType, ...]] = {
    "float": (DType.FLOAT32,),
    "double": (DType.FLOAT64,),
    "half": (DType.FLOAT16,),
    "__half": (DType.FLOAT16,),
    "_Float16": (DType.FLOAT16,),
    "nv_bfloat16": (DType.BFLOAT16,),
    "__nv_bfloat16": (DType.BFLOAT16,),
    "bool": (DType.BOOL,),
    "int8_t": (DType.INT8,),
    "signed char": (DType.INT8,),
    "uint8_t": (DType.UINT8, DType.BOOL),
    "unsigned char": (DType.UINT8, DType.BOOL),
    "int16_t": (DType.INT16,),
    "short": (DType.INT16,),
    "uint16_t": (DType.INT16, *_HALVES),
    "unsigned short": (DType.INT16, *_HALVES),
    "int": (DType.INT32,),
    "int32_t": (DType.INT32,),
    # Counters for "last block finishes" are unsigned; torch allocates them as int32.
    "unsigned int": (DType.INT32,),
    "uint32_t": (DType.INT32,),
    "long long": (DType.INT64,),
    "long": (DType.INT64,),
    "int64_t": (DType.INT64,),
    "unsigned long long": (DType.INT64,),
    "uint64_t": (DType.INT64,),
    "void": tuple(DType),
}


class ScalarType(Value):
    """A C type passed by value; `code` is its `struct` format letter."""

    code: str
    size_bytes: int
    minimum: int | None = None
    maximum: int | None = None

    @property
    def is_integer(self) -> bool:
        """Whether fractions are refused."""
        return self.minimum is not None


def _signed(code: str, bits: int) -> ScalarType:
    return ScalarType(
        code=code,
        size_bytes=bits // 8,
        minimum=-(1 << (bits - 1)),
        maximum=(1 << (bits - 1)) - 1,
    )


def _unsigned(code: str, bits: int) -> ScalarType:
    return ScalarType(code=code, size_bytes=bits // 8, minimum=0, maximum=(1 << bits) - 1)


_I32, _U32, _I64, _U64 = _signed("i", 32), _unsigned("I", 32), _signed("q", 64), _unsigned("Q", 64)

SCALARS: Mapping[str, ScalarType] = {
    "float": ScalarType(code="f", size_bytes=4),
    "double": ScalarType(code="d", size_bytes=8),
    "bool": ScalarType(code="?", size_bytes=1, minimum=0, maximum=1),
    "int": _I32,
    "int32_t": _I32,
    "unsigned int": _U32,
    "uint32_t": _U32,
    "long long": _I64,
    "long": _I64,
    "int64_t": _I64,
    "ptrdiff_t": _I64,
    "unsigned long long": _U64,
    "unsigned long": _U64,
    "uint64_t": _U64,
    "size_t": _U64,
}

_ALIASES = {
    "unsigned": "unsigned int",
    "long int": "long",
    "long long int": "long long",
    "unsigned long int": "unsigned long",
    "unsigned long long int": "unsigned long long",
    "short int": "short",
    "unsigned short int": "unsigned short",
    "signed int": "int",
}


def canonical(spelling: str) -> str:
    """A C type without qualifiers, `std::` and doubled blanks, in one of the table's spellings."""
    words = re.sub(r"\b(?:const|volatile|register)\b|(?:\bstd)?::", " ", spelling).split()
    plain = " ".join(words)
    return _ALIASES.get(plain, plain)
