"""Tensors as places in shared memory, and back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tools.evaluate.foreign.arena import Arena
from tools.evaluate.foreign.messages import Constant, Place, Slot
from tools.evaluate.judge.bits import extent


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
    flat = raw[place.offset : place.offset + size].view(dtype)
    # A tensor whose storage is its own as far as foreign code can see.
    return flat.as_strided(place.shape, place.strides)


def arguments_at(raw: Tensor, slots: Sequence[Slot]) -> list[Tensor | Constant]:
    """The arguments of one call."""
    return [tensor_at(raw, s.place) if s.place is not None else s.constant for s in slots]
