"""Tensors as places in shared memory, and back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.arena import Arena
from kernelwright.tools.evaluate.foreign.messages import Constant, Place, Slot
from kernelwright.tools.evaluate.verify.bits import extent


def place_of(arena: Arena, tensor: Tensor) -> Place:
    """Where a tensor lies that was made in the arena."""
    return Place(
        offset=arena.offset(tensor),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )


def slots_of(arena: Arena, arguments: Sequence[Tensor | Constant]) -> tuple[Slot, ...]:
    """Arguments whose tensors lie in the arena."""
    return tuple(
        Slot(place=place_of(arena, value)) if isinstance(value, Tensor) else Slot(constant=value)
        for value in arguments
    )


def tensor_at(raw: Tensor, place: Place) -> Tensor:
    """The tensor at a place of somebody's shared bytes."""
    dtype: torch.dtype = getattr(torch, place.dtype)
    empty = torch.empty_strided(place.shape, place.strides, dtype=dtype, device="meta")
    size = extent(empty) * dtype.itemsize
    if size == 0:
        return torch.empty_strided(place.shape, place.strides, dtype=dtype, device=raw.device)
    # A storage of its own, so that no view of it leads to the arguments of later calls.
    begin = raw[place.offset : place.offset + size].data_ptr()
    storage = torch._C._construct_storage_from_data_pointer(begin, raw.device, size)
    return torch.empty(0, dtype=dtype, device=raw.device).set_(
        storage, 0, place.shape, place.strides
    )


def arguments_at(raw: Tensor, slots: Sequence[Slot]) -> list[Tensor | Constant]:
    """The arguments of one call."""
    return [tensor_at(raw, s.place) if s.place is not None else s.constant for s in slots]
