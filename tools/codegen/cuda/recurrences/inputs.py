"""The products of a recurrent layer's inputs: all steps at once, by the families for products.

What a step multiplies its input by depends on no state, so it is one ordinary product of matrices,
tokens x inputs by inputs x gates, with the bias added. Results are float32 whatever the type of the
operands: nothing is rounded before it is added to the state's product.
"""

from __future__ import annotations

from functools import lru_cache

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.contractions.family import ContractionFamily
from kernelwright.tools.codegen.cuda.contractions.float32.split import SPLIT_MMA_FAMILY
from kernelwright.tools.codegen.cuda.contractions.float32.streamed import STREAMED_FAMILY
from kernelwright.tools.codegen.cuda.contractions.float32.wgmma import SPLIT_WGMMA_FAMILY
from kernelwright.tools.codegen.cuda.contractions.mapped.family import MAP_FAMILY
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import MMA_FAMILY
from kernelwright.tools.codegen.cuda.contractions.simt import SIMT_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.rows import ROW_FAMILY, SERIAL_FAMILY
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, Stride
from kernelwright.tools.codegen.ir.contraction import PRODUCT
from kernelwright.tools.codegen.ir.kernel_family import Fit, KernelFamily
from kernelwright.tools.codegen.ir.recurrence import Recurrence
from kernelwright.tools.types import DType

_PRODUCTS: tuple[ContractionFamily, ...] = (
    MAP_FAMILY,
    MMA_FAMILY,
    SPLIT_WGMMA_FAMILY,
    STREAMED_FAMILY,
    SPLIT_MMA_FAMILY,
    SIMT_FAMILY,
)
# For what is no product of matrices any more, as a single token or inputs of width one.
_ROWS: tuple[KernelFamily[Case], ...] = (ROW_FAMILY, SERIAL_FAMILY)


def input_product(recurrence: Recurrence, layer: int, prefix: str) -> Loop:
    """The loop of one direction of one layer, over buffers that start with the prefix."""
    m, n, k = recurrence.tokens, recurrence.gates * recurrence.hidden, recurrence.width(layer)
    x = _load("x", f"{prefix}_x", recurrence.dtype, m=k, k=1)
    w = _load("w", f"{prefix}_w", recurrence.dtype, n=k, k=1)
    product = Stmt(name="xw", op="mul", dtype=DType.FLOAT32, args=("x", "w"))
    total = Stmt(name="t", op="reduce", dtype=DType.FLOAT32, args=("xw",), reduce=ReduceKind.SUM)
    body: tuple[Stmt, ...] = (x, w, product, total)
    if recurrence.has_biases:
        bias = _load("b", f"{prefix}_b", recurrence.dtype, n=1)
        body = (*body, bias, Stmt(name="tb", op="add", dtype=DType.FLOAT32, args=("t", "b")))
    made = Access(buffer=f"{prefix}_gates", dtype=DType.FLOAT32, strides=_strides(m=n, n=1))
    return Loop(
        name=f"{prefix}_inputs",
        outer=(Axis(name="m", size=m), Axis(name="n", size=n)),
        inner=(Axis(name="k", size=k),),
        body=body,
        stores=(Store(access=made, value=body[-1].name),),
        family=PRODUCT,
    )


def _load(name: str, buffer: str, dtype: DType, **steps: int) -> Stmt:
    access = Access(buffer=buffer, dtype=dtype, strides=_strides(**steps))
    return Stmt(name=name, op="load", dtype=DType.FLOAT32, access=access)


def _strides(**steps: int) -> tuple[Stride, ...]:
    return tuple(Stride(by=by, step=step) for by, step in steps.items())


@lru_cache(maxsize=64)
def fastest_product(loop: Loop, hardware: Hardware) -> tuple[KernelFamily[Case], str, float]:
    """The family and the strategy predicted fastest for a product, and its milliseconds."""
    case = Case(loop, hardware)
    willing: tuple[KernelFamily[Case], ...] = tuple(
        one for one in _PRODUCTS if one.fit(case) is not Fit.NO
    )
    found = [
        (family.predicted_ms(case, strategy), at, family, strategy.name)
        for at, family in enumerate(willing or _ROWS)
        if family.fit(case) is not Fit.NO
        for strategy in family.strategies(case)
    ]
    time_ms, _, family, name = min(found, key=lambda one: one[:2])
    return family, name, time_ms
