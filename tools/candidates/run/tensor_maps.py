"""`tensor_map(tensor, box=...)`: what a plan passes where a kernel has the copy engine fetch boxes.

A map describes a tensor to a device's copy engine: where it begins, how many elements it has along
each dimension, how far they lie apart, and the box that one copy brings. What is outside of the
tensor arrives as zeros. A kernel takes it as `const __grid_constant__ kw::TensorMap`. Here it is
checked, as strictly as every other argument: a map may not reach beyond the tensor that it is
made of. Encoding it is the language's. Both are done once for a tensor at one place, since a plan
runs on every timed call.

Dimensions are listed as torch does, the contiguous one last. Not here: maps of convolutions'
windows (im2col), whose corners and strides would be further keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Never

import torch

from kernelwright.tools.candidates.arithmetic import LaunchRefused

Extents = tuple[int, ...]

LEAST_RANK, MOST_RANK = 2, 5
MOST_BOX = 256
SWIZZLES = (0, 32, 64, 128)
# Bytes that addresses, strides and the inner side of boxes are multiples of.
_PIECE = 16
_MOST_SIZE, _MOST_STRIDE_BYTES = 1 << 32, 1 << 40
_DTYPES = frozenset(
    {
        torch.bfloat16,
        torch.bool,
        torch.float16,
        torch.float8_e4m3fn,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
    }
)
# What a plan that meets ever new tensors may hold on to.
_MOST_KNOWN = 256


class TensorMap:
    """A checked map.

    Args:
        address: The first element's.
        device: The device's index; -1 for the host.
        dtype: The elements' type.
        shape: Elements along each dimension, the contiguous one last.
        strides: Elements from one to the next along each dimension; the last is 1.
        box: Elements of one copy along each dimension.
        swizzle: Bytes within which 16-byte pieces are permuted in shared memory; 0 for none.

    Attributes:
        encoded: What a language made of it, once it has.
    """

    __slots__ = (
        "address", "box", "device", "dtype", "encoded", "shape", "strides", "swizzle"
    )  # fmt: skip

    def __init__(
        self,
        address: int,
        device: int,
        dtype: torch.dtype,
        shape: Extents,
        strides: Extents,
        box: Extents,
        swizzle: int,
    ) -> None:
        self.address, self.device, self.dtype = address, device, dtype
        self.shape, self.strides, self.box, self.swizzle = shape, strides, box, swizzle
        self.encoded: bytes | None = None


Encode = Callable[[TensorMap], bytes]


class TensorMaps:
    """The plan's word: makes and checks each map once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], TensorMap] = {}

    def __call__(
        self,
        tensor: object,
        box: object = None,
        shape: object = None,
        strides: object = None,
        offset: object = 0,
        swizzle: object = 128,
    ) -> TensorMap:
        """The map of a tensor, or of a part of it.

        Args:
            tensor: What is read.
            box: Elements of one copy along each dimension.
            shape: Elements along each dimension; the tensor's own when None.
            strides: Elements apart; the tensor's own, or those of a contiguous `shape`, when None.
            offset: The element that the map begins at.
            swizzle: 128, 64, 32 or 0 bytes.

        Raises:
            LaunchRefused: When no copy engine takes it, or it reaches beyond the tensor.
        """
        if not isinstance(tensor, torch.Tensor):
            _refuse(f"the first argument is a tensor, not {type(tensor).__name__}")
        own = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        key = (*own, box, shape, strides, offset, swizzle)
        try:
            found = self._known.get(key)
        except TypeError:
            _refuse("box, shape and strides are tuples of whole numbers")
        if found is None:
            found = checked_map(tensor, box, shape, strides, offset, swizzle)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found


def checked_map(
    tensor: torch.Tensor,
    box: object,
    shape: object,
    strides: object,
    offset: object,
    swizzle: object,
) -> TensorMap:
    """A map of these words; see TensorMaps."""
    sizes = tuple(tensor.shape) if shape is None else _numbers("shape", shape)
    own = tensor.stride() if shape is None else _contiguous(sizes)
    steps = own if strides is None else _numbers("strides", strides)
    copied = _numbers("box", box)
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        _refuse(f"offset is a number of elements, not {offset!r}")
    if swizzle not in SWIZZLES or not isinstance(swizzle, int):
        _refuse(f"swizzle is 0, 32, 64 or 128 bytes, not {swizzle!r}")
    _check_dimensions(sizes, steps, tensor)
    _check_reach(sizes, steps, offset, tensor)
    _check_box(copied, sizes, swizzle, tensor.element_size())
    address = tensor.data_ptr() + offset * tensor.element_size()
    if address % _PIECE:
        _refuse(f"it begins at no multiple of {_PIECE} bytes")
    index = tensor.get_device() if tensor.device.type != "cpu" else -1
    return TensorMap(address, index, tensor.dtype, sizes, steps, copied, swizzle)


def _check_dimensions(sizes: Extents, steps: Extents, tensor: torch.Tensor) -> None:
    if not LEAST_RANK <= len(sizes) <= MOST_RANK:
        _refuse(f"it has {LEAST_RANK} to {MOST_RANK} dimensions, not {len(sizes)}")
    if len(steps) != len(sizes):
        _refuse(f"strides {steps} are not one for each dimension of {sizes}")
    if tensor.dtype not in _DTYPES:
        _refuse(f"there are no maps of {str(tensor.dtype).removeprefix('torch.')}")
    if not all(0 < size <= _MOST_SIZE for size in sizes):
        _refuse(f"shape {sizes} is empty or too large")
    if steps[-1] != 1:
        _refuse(f"the last dimension is contiguous, its stride is 1 and not {steps[-1]}")
    in_bytes = [step * tensor.element_size() for step in steps[:-1]]
    if not all(0 < step < _MOST_STRIDE_BYTES and step % _PIECE == 0 for step in in_bytes):
        _refuse(f"strides {steps} are no positive multiples of {_PIECE} bytes")


def _check_reach(sizes: Extents, steps: Extents, offset: int, tensor: torch.Tensor) -> None:
    last = offset + _reach(sizes, steps)
    held = 1 + _reach(tensor.shape, tensor.stride()) if tensor.numel() else 0
    if last >= held:
        _refuse(f"it reaches element {last} of a tensor that ends with element {held - 1}")


def _check_box(box: Extents, sizes: Extents, swizzle: int, element_bytes: int) -> None:
    if len(box) != len(sizes):
        _refuse(f"box {box} is not one number for each dimension of {sizes}")
    if not all(0 < side <= MOST_BOX for side in box):
        _refuse(f"box {box} has sides outside of 1 to {MOST_BOX}")
    inner = box[-1] * element_bytes
    if inner % _PIECE:
        _refuse(f"the last side of box {box} is no multiple of {_PIECE} bytes")
    if swizzle and inner > swizzle:
        _refuse(f"the last side of box {box} is longer than the swizzle's {swizzle} bytes")


def _numbers(name: str, value: object) -> Extents:
    parts = value if isinstance(value, tuple) else ()
    if not parts or not all(isinstance(p, int) and not isinstance(p, bool) for p in parts):
        _refuse(f"{name} is a tuple of whole numbers, not {value!r}")
    return parts


def _contiguous(sizes: Extents) -> Extents:
    return tuple(prod(sizes[at + 1 :]) for at in range(len(sizes)))


def _reach(sizes: Extents, steps: Extents) -> int:
    return sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))


def _refuse(words: str) -> Never:
    raise LaunchRefused(f"tensor_map: {words}")
