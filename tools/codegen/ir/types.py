"""Which types are computed in; what they are called is a language's business."""

from kernelwright.tools.types import DType


def computed(dtype: DType) -> DType:
    """The type that values of `dtype` are computed in."""
    if dtype in (DType.FLOAT64, DType.BOOL):
        return dtype
    return DType.FLOAT32 if dtype.is_floating else DType.INT64
