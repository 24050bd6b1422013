"""Which type a pointwise operator computes in, by PyTorch's promotion.

Tensors with dimensions go before those without, and these before plain numbers: a category that is
higher decides, and within it the highest type.
"""

from kernelwright.tools.codegen.lower.nests.context import Context, base
from kernelwright.tools.codegen.lower.nests.expressions import computed
from kernelwright.tools.codegen.lower.operators.pointwise import TO_FLOAT
from kernelwright.tools.types import DType, Node, Ref, Scalar


def work_type(context: Context, node: Node, out: DType) -> DType:
    """The type that operands are brought to: PyTorch's promotion, in the types computed in."""
    if base(node.op) in TO_FLOAT or (out is not DType.BOOL and out.is_floating):
        return out if out is not DType.BOOL else DType.FLOAT32
    if out is DType.INT64:
        return out
    given = (*node.args, *(arg for _, arg in node.kwargs))
    views = [context.value(arg) for arg in given if isinstance(arg, Ref)]
    sized = [computed(view.dtype) for view in views if view.dims]
    single = [computed(view.dtype) for view in views if not view.dims]
    plain = [_kind(arg.value) for arg in node.args[:2] if isinstance(arg, Scalar)]
    best = DType.BOOL
    for group in (sized, single, [kind for kind in plain if kind is not None]):
        high = max(group, key=_rank, default=DType.BOOL)
        if _category(high) > _category(best):
            best = high
    return best


_RANKS = (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64)


def _rank(dtype: DType) -> int:
    return _RANKS.index(dtype)


def _category(dtype: DType) -> int:
    return min(_rank(dtype), 2)


def _kind(value: object) -> DType | None:
    if isinstance(value, bool):
        return DType.BOOL
    if isinstance(value, int):
        return DType.INT64
    return DType.FLOAT32 if isinstance(value, float) else None
