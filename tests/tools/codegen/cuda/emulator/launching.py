"""The words of a plan over emulated kernels, and arguments as the emulator reads them.

Tensors go by address, tensor maps as a `kw::TensorMap` of the emulator's own.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from kernelwright.tools.candidates.run.tensor_maps import TensorMaps

Buffers = dict[str, torch.Tensor]
# With room to be aligned in.
Encoded = ctypes.Array[ctypes.c_uint8]


def address(value: torch.Tensor | Encoded) -> int:
    """Where a kernel finds it."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return ctypes.addressof(value) + -ctypes.addressof(value) % 64


def encoded(tensor: torch.Tensor, **given: object) -> Encoded:
    """A checked map, laid out as `bulk.hpp` declares it: the contiguous dimension first."""
    one, size = TensorMaps()(tensor, **given), tensor.element_size()
    strides = [step * size for step in one.strides]
    dimensions = [_five(values) for values in (one.shape, strides, one.box)]
    numbers = [one.address, *dimensions[0], *dimensions[1], *dimensions[2]]
    text = struct.pack("=Q10Q8H", *numbers, len(one.shape), size, one.swizzle)
    memory = (ctypes.c_uint8 * 192)()
    ctypes.memmove(address(memory), text, len(text))
    return memory


def _five(values: Iterable[int]) -> list[int]:
    return [*reversed([*values]), 0, 0, 0, 0][:5]


class Emulated:
    """The words of a plan, for emulated kernels."""

    def __init__(self, library: ctypes.CDLL, buffers: Buffers, settings: Mapping[str, int]):
        self._library, self._buffers, self._settings = library, buffers, settings

    def names(self) -> dict[str, object]:
        return {
            **self._buffers,
            **self._settings,
            "empty": lambda shape, dtype: _poisoned(shape, _torch(dtype)),
            "zeros": lambda shape, dtype: torch.zeros(shape, dtype=_torch(dtype)),
            "ceil_div": lambda a, b: -(-a // b),
            "launch": self._launch,
            "tensor_map": encoded,
        }

    def _launch(
        self,
        kernel: str,
        *,
        grid: int,
        block: int,
        args: tuple[Any, ...],
        shared: int = 0,
        cluster: int = 1,
    ) -> None:
        assert shared <= 227 * 1024
        pointers = (ctypes.c_void_p * len(args))(*map(address, args))
        getattr(self._library, f"run_{kernel}")(grid, block, cluster, shared, pointers)


def _poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan") if dtype.is_floating_point else 0x7FFFFFFF, dtype=dtype)


def _torch(dtype: str) -> torch.dtype:
    found = getattr(torch, dtype)
    assert isinstance(found, torch.dtype)
    return found
