"""The least time that a task's own arithmetic takes in the precision that it is held to.

The floor (`ceilings.floor_ms`) divides operations by the fastest rate that a device has, whatever
comes out: an answer as exact as float32 takes three products of fp16 parts for one of its own, and
a third of the fp16 rate stands for all of it. The roof says how much of that was reached. It is no
bound that a time is refused by: algebra, and triangles that are left out, do less than is counted.

Not here: products in float64, and what a part of an untraced model multiplies.
"""

from __future__ import annotations

from kernelwright.profiles.load import Hardware
from kernelwright.tools.hardware.ceilings import floor_ms
from kernelwright.tools.types import DType, Node, Task, Value
from kernelwright.tools.types.graph import base

_PRODUCTS = (
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "linear", "matmul", "einsum",
    "scaled_dot_product_attention", "gru", "lstm", "rnn_tanh", "rnn_relu",
)  # fmt: skip
_CONVOLUTION = "convolution"
_HALF_TYPES = (DType.FLOAT16, DType.BFLOAT16)
# Products of parts that an answer as exact as float32's takes.
_PARTS = 3
_HALVES = "fp16 products"
_ROUGH = "one fp16 product for each, as exact as TF32"
_SPLIT = "three fp16 products for each of float32"
_PLAIN = "float32 products"


class Roof(Value):
    """`ms` at least, of operations done by `how`; bytes may take longer than they do."""

    ms: float
    how: str


def roof_of(task: Task, hardware: Hardware) -> Roof | None:
    """The roof of a task on a device; None where the floor says the same, or nobody knows."""
    multiplying = [node for node in task.graph.nodes if base(node.op) in (*_PRODUCTS, _CONVOLUTION)]
    rates = [_rate(node, task, hardware) for node in multiplying]
    known = [rate for rate in rates if rate is not None]
    if not rates or len(known) < len(rates):
        return None
    # Of several kinds the fastest rate, so that none of them can be too slow.
    tflops, how = max(known)
    by_memory = floor_ms(task.bytes_moved, 0, hardware)
    return Roof(ms=max(by_memory, task.flops / (tflops * 1e9)), how=how)


def _rate(node: Node, task: Task, hardware: Hardware) -> tuple[float, str] | None:
    """The rate that a product may run at, and by what; None where there is no telling."""
    tensor, dtype = hardware.tensor_tflops, node.out[0].dtype
    if tensor is None or dtype not in (*_HALF_TYPES, DType.FLOAT32):
        return None
    if dtype in _HALF_TYPES:
        return tensor, _HALVES
    if task.allow or (base(node.op) == _CONVOLUTION and task.graph.is_tf32):
        return tensor, _ROUGH
    return max((tensor / _PARTS, _SPLIT), (hardware.fp32_tflops, _PLAIN))
