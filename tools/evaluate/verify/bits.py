"""Tensors as raw bits, so that NaN equals itself and -0 differs from 0."""

import torch
from torch import Tensor

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def extent(tensor: Tensor) -> int:
    """Elements from the first to the last that the tensor can reach, gaps included."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def flat_memory(tensor: Tensor) -> Tensor:
    """The memory under the tensor as one flat view, gaps and repetitions as they lie."""
    return tensor.as_strided((extent(tensor),), (1,), tensor.storage_offset())


def bits(tensor: Tensor) -> Tensor:
    """The elements in order as integers of the same width; a view where the layout allows it."""
    return tensor.detach().reshape(-1).view(_INTEGER[tensor.element_size()])


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether every element has the same bits."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(bits(left), bits(right.to(left.device)))


def first_difference(left: Tensor, right: Tensor) -> tuple[int, ...]:
    """Index of the first element whose bits differ; the tensors are known to differ."""
    flat = int((bits(left) != bits(right.to(left.device))).to(torch.uint8).argmax())
    return unravel(flat, tuple(left.shape))


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element from its position in memory order."""
    index: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        index.append(rest)
    return tuple(reversed(index))
