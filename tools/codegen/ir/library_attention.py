"""What the library's attention takes on a GPU: by tiles of queries and keys, and by its mask.

A rate of operations says little of it: a short sequence pays for padded tiles and for what stands
before and after a tile's steps, a narrow head for powers, and a mask for being read in the step
and, if it is of flags, for being made numbers in every call.

All figures are of an H200 (torch 2.11: cuDNN in half types, the memory-efficient kernel in
float32), in cycles of a multiprocessor; on other devices they are scaled by the rate of their
arithmetic. They give the times of `benchmarks/results/h200/attention.jsonl`,
`attention_single.jsonl` and of calls in three models within 5 %. Not here: dropout, backends that
take over where these refuse, and CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import DType, Value

HALVES = (DType.FLOAT16, DType.BFLOAT16)


class AttentionSizes(Value):
    """What a call of attention asks for: heads (batches included), rows and columns.

    `mask` says whether it has none, one row of it for all queries, or a row for each query;
    `flags` counts the elements of a mask of flags, 0 where there is none.
    """

    dtype: DType
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    is_causal: bool = False
    mask: Literal["", "row", "rows"] = ""
    flags: int = 0


@dataclass(frozen=True)
class _Kernel:
    """The library's kernel for some types: rows and keys of a step, and cycles.

    `power` is of a score's 2^x and what stands around it, a row of a mask and several rows are
    what they add; of the products `multiplied` multiply-adds are done in a cycle, of widths padded
    to `columns`. `beside` is before and after a tile's steps, and `diagonal` a causal tile's mask.
    """

    rows: int
    keys: int
    columns: int
    power: float
    multiplied: float
    row: float
    several_rows: float
    beside: float
    diagonal: float

    def cycles(self, one: AttentionSizes) -> float:
        """Cycles of a multiprocessor for one head."""
        down, along = -(-one.queries // self.rows), -(-one.keys // self.keys)
        steps = down * along
        if one.is_causal:
            last = (-(-min(one.keys, (at + 1) * self.rows) // self.keys) for at in range(down))
            steps = sum(last)
        widths = sum(-(-w // self.columns) * self.columns for w in (one.width, one.value_width))
        masked = {"": 0.0, "row": self.row, "rows": self.several_rows}[one.mask]
        score = self.power + widths / self.multiplied + masked
        beside = self.beside + (self.diagonal if one.is_causal else 0.0)
        return steps * self.rows * self.keys * score + down * beside


_IN_HALF = _Kernel(128, 128, 64, 0.061, 1982, 0.084, 0.131, 2600, 2100)
_IN_SINGLE = _Kernel(64, 64, 32, 1.18, 194, 0.21, 0.42, 2300, 17400)
# Multiply-adds of a multiprocessor in a cycle, which tell cycles from the rates of a device: those
# of tensor cores in half types, and what float32's rate came to on the clock of these.
_ON_TENSOR_CORES, _PLAIN = 2048, 138.5
# Passes that make numbers of flags: a fill, a negation and a fill under it.
_PASSES = 3


def library_attention_ms(one: AttentionSizes, hardware: Hardware) -> float:
    """The time of a call besides its launch, all heads sharing the device evenly."""
    kernel, rate = _IN_SINGLE, hardware.fp32_tflops / (2 * _PLAIN)
    if one.dtype in HALVES and hardware.tensor_tflops is not None:
        kernel, rate = _IN_HALF, hardware.tensor_tflops / (2 * _ON_TENSOR_CORES)
    # `rate` has all multiprocessors' cycles, and a few tiles keep only some of them busy.
    tiles = one.heads * -(-one.queries // kernel.rows)
    busy = min(1.0, tiles / (hardware.sm_count or 1))
    return one.heads * kernel.cycles(one) / (rate * 1e9 * busy) + _numbers_ms(one, hardware)


def _numbers_ms(one: AttentionSizes, hardware: Hardware) -> float:
    """The time until a mask of flags is one of numbers."""
    if not one.flags:
        return 0.0
    # Numbers are written, read and written again; flags read, written and read.
    moved = one.flags * (3 * one.dtype.itemsize_bytes + 3)
    return moved / (hardware.bandwidth_gb_s * 1e6) + _PASSES * hardware.launch_us / 1e3
