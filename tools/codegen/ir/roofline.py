"""The roofline's time of a loop under a strategy, and of a whole program.

Time is the larger of memory's and arithmetic's, plus the launches. The ledger corrects these
figures later; what is not modelled: overlap between loops, and caches beyond the last level.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Access, Loop, PlanLine, Stmt, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.library_attention import library_attention_ms
from kernelwright.tools.codegen.ir.loops import varies_along
from kernelwright.tools.types import DType

# How many multiply-adds an operator costs where hardware has no single instruction for it.
_DEAR = {
    "exp": 8, "exp2": 6, "expm1": 12, "log": 10, "log2": 8, "log10": 10, "log1p": 12, "tanh": 16,
    "sigmoid": 12, "erf": 20, "erfc": 24, "sin": 16, "cos": 16, "tan": 24, "pow": 24, "div": 6,
    "sqrt": 6, "rsqrt": 6, "reciprocal": 4, "atan2": 30, "fmod": 12, "remainder": 12, "lgamma": 60,
}  # fmt: skip


def predict_ms(loop: Loop, strategy: Strategy, hardware: Hardware) -> float:
    """Predicted time of one loop, in milliseconds."""
    read, written = loop_bytes(loop)
    moved = read * strategy.bytes_read_factor + written
    return roofline_ms(moved, loop_flops(loop), strategy, hardware)


def roofline_ms(
    moved_bytes: float,
    flops: float,
    strategy: Strategy,
    hardware: Hardware,
    *,
    tflops: float | None = None,
) -> float:
    """The larger of memory's time and arithmetic's, and the launches.

    Args:
        moved_bytes: Read and written, as often as they are.
        flops: Arithmetic, a multiply-add counted as two.
        strategy: Its share of bandwidth and its launches count.
        hardware: The device.
        tflops: The rate of the arithmetic; None for plain float32. A family on tensor cores
            gives the share of `hardware.tensor_tflops` that it reaches.
    """
    rate = hardware.fp32_tflops if tflops is None else tflops
    by_memory = moved_bytes / (hardware.bandwidth_gb_s * 1e6 * strategy.efficiency)
    by_arithmetic = flops / (rate * 1e9)
    return max(by_memory, by_arithmetic) + strategy.launches * hardware.launch_us / 1e3


def line_ms(line: PlanLine, hardware: Hardware) -> float:
    """The roofline's time for one library call, its launch included; a view costs nothing."""
    by_memory = line.cost_bytes / (hardware.bandwidth_gb_s * 1e6)
    by_arithmetic = _arithmetic_ms(line, hardware)
    launched = line.cost_bytes > 0 or line.cost_flops > 0
    stepped = line.dependent_steps * _STEP_US / 1e3 if hardware.kind == "cuda" else 0.0
    launches = hardware.launch_us / 1e3 if launched else 0.0
    return max(by_memory, by_arithmetic, stepped) + launches + _turning_ms(line, hardware)


def _turning_ms(line: PlanLine, hardware: Hardware) -> float:
    """What a library's passes that turn layouts take on a GPU: each tensor read and written."""
    if hardware.kind != "cuda":
        return 0.0
    moved = 2 * line.turned_bytes / (hardware.bandwidth_gb_s * 1e6 * _TURNED)
    return moved + line.turned_launches * hardware.launch_us / 1e3


# Of the bandwidth these passes reach: 256 MB in 78 and 69 us on an H200 (ResNetBasicBlock in
# benchmarks/results/h200/model_kernels_convolutions.jsonl).
_TURNED = 0.73


# A step of a recurrent layer in the library: 42 ms for 512 steps of 6 layers of a GRU (batch 10,
# hidden 256) on an H200.
_STEP_US = 13.7


# What the library's products of matrices in float32 reach of the plain rate: 51 TFLOP/s of 66.9 at
# 4096 cubed on an H200 (torch 2.11).
LIBRARY_PRODUCTS = frozenset(
    {"aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.addbmm.default"}
)
CONVOLUTION = "aten.convolution.default"
_OF_PLAIN_RATE = 0.76
# In half precision, of the fp16 tensor rate: 771 of 989 there, 547 at 2048 cubed.
HALF_PRODUCTS = 0.7
# Float32 convolutions, which the library computes in TF32, of the same rate: 161 to 203 of 989 over
# images with 64 and more channels, 1.4 to 40 over most others, which decides: products of ours are
# left out where they are sure to be slower.
TF32_CONVOLUTIONS = 0.02
_HALF_TYPES = (DType.FLOAT16, DType.BFLOAT16)


def library_product_ms(contraction: Contraction, hardware: Hardware) -> float:
    """What the library takes for a product alone, without what stands around it."""
    sides = contraction.m * contraction.k + contraction.k * contraction.n
    moved = 4 * contraction.batches * (sides + contraction.m * contraction.n)
    rate = hardware.fp32_tflops * _OF_PLAIN_RATE
    if contraction.precision in _HALF_TYPES and hardware.tensor_tflops is not None:
        rate, moved = hardware.tensor_tflops * HALF_PRODUCTS, moved // 2
    elif contraction.is_tf32 and hardware.tensor_tflops is not None:
        rate = hardware.tensor_tflops * TF32_CONVOLUTIONS
    by_memory = moved / (hardware.bandwidth_gb_s * 1e6)
    return max(by_memory, contraction.flops / (rate * 1e9)) + hardware.launch_us / 1e3


def _arithmetic_ms(line: PlanLine, hardware: Hardware) -> float:
    if line.attention is not None and hardware.kind == "cuda":
        return library_attention_ms(line.attention, hardware)
    return line.cost_flops / (_library_tflops(line, hardware) * 1e9)


def _library_tflops(line: PlanLine, hardware: Hardware) -> float:
    if line.tensor_share is None or hardware.tensor_tflops is None:
        is_product = hardware.kind == "cuda" and line.operator in LIBRARY_PRODUCTS
        return hardware.fp32_tflops * (_OF_PLAIN_RATE if is_product else 1.0)
    return line.tensor_share * hardware.tensor_tflops


def loop_bytes(loop: Loop) -> tuple[int, int]:
    """Bytes that a loop must read and write, each element once.

    A gather is counted once a position, whatever it hits.
    """
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    depends = varies_along(loop)
    read: dict[str, set[Access]] = {}
    for stmt in loop.body:
        if stmt.access is not None:
            read.setdefault(stmt.access.buffer, set()).add(stmt.access)
    written = sum(_footprint(store.access, sizes, depends) for store in loop.stores)
    return sum(_together(views, sizes, depends) for views in read.values()), written


def _together(
    views: set[Access], sizes: Mapping[str, int], depends: Mapping[str, frozenset[str]]
) -> int:
    """Bytes of several views of one tensor: those of each, up to what lies between their ends.

    Where that is no bound (an element found by a gather) the largest view counts.
    """
    each = [_footprint(view, sizes, depends) for view in views]
    if any(stride.by not in sizes for view in views for stride in view.strides):
        return max(each)
    ends = [_ends(view, sizes) for view in views]
    spanned = max(high for _, high in ends) - min(low for low, _ in ends) + 1
    return min(sum(each), max(max(each), spanned * next(iter(views)).dtype.itemsize_bytes))


def _ends(access: Access, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The first and the last element that a view reaches."""
    moved = [stride.step * (sizes[stride.by] - 1) for stride in access.strides]
    low = access.offset + sum(min(0, step) for step in moved)
    return low, access.offset + sum(max(0, step) for step in moved)


def _footprint(
    access: Access, sizes: Mapping[str, int], depends: Mapping[str, frozenset[str]]
) -> int:
    axes: set[str] = set()
    for stride in access.strides:
        if stride.step:
            axes |= {stride.by} if stride.by in sizes else depends[stride.by]
    positions = prod(sizes[axis] for axis in axes)
    if all(stride.by in sizes for stride in access.strides):
        # Windows read most elements several times.
        low, high = _ends(access, sizes)
        positions = min(positions, high - low + 1)
    return positions * access.dtype.itemsize_bytes


def loop_flops(loop: Loop) -> int:
    """Arithmetic of a loop; a multiply-add counts two, dear functions what they cost."""
    levels = loop.levels()
    total = 0
    for stmt in loop.body:
        at_element = stmt.op == "reduce" or levels[stmt.name] == "element"
        total += statement_flops(stmt) * loop.rows * (loop.columns if at_element else 1)
    return total


def statement_flops(stmt: Stmt) -> int:
    """Arithmetic of one evaluation of a statement."""
    if stmt.op in ("load", "const", "index", "cast", "tf32"):
        return 0
    return 2 * _DEAR[stmt.op] if stmt.op in _DEAR else (2 if stmt.op == "fma" else 1)
