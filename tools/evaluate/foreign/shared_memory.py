"""Memory that judge and guest both see: the judge makes it, the guest gets a descriptor.

On the CPU it is an anonymous file that cannot be resized by anybody, on a GPU device memory: CUDA's
virtual memory interface exports an allocation as a file descriptor. A descriptor passes walls that
names and process ids do not; nothing is pickled, and no other memory can be reached. `place_of` and
`tensor_at` turn tensors into places in shared memory, and back.
"""

import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Protocol, SupportsInt

import torch
from cuda.bindings import driver
from torch import Tensor

from kernelwright.tools.evaluate.foreign.messages import Constant, Slot, TensorPlace
from kernelwright.tools.evaluate.verify.bits import extent

_DESCRIPTOR = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class _Interface:
    """Raw bytes as torch takes them from other libraries."""

    def __init__(self, pointer: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }


class DeviceMemory:
    """One allocation, mapped in this process; lives as long as the process does."""

    def __init__(self, handle: object, size_bytes: int, descriptor: int) -> None:
        self.descriptor = descriptor
        (pointer,) = _done(driver.cuMemAddressReserve(size_bytes, 0, 0, 0))
        _done(driver.cuMemMap(pointer, size_bytes, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = _location()
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _done(driver.cuMemSetAccess(pointer, size_bytes, [access], 1))
        self.raw: Tensor = torch.as_tensor(_Interface(int(pointer), size_bytes), device="cuda")

    @classmethod
    def make(cls, size_bytes: int) -> "DeviceMemory":
        """Fresh memory, at least so much.

        Raises:
            MemoryError: the device has not so much left, or cannot share it.
        """
        _context()
        wanted = driver.CUmemAllocationProp()
        wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location = _location()
        wanted.requestedHandleTypes = _DESCRIPTOR
        smallest = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        (step,) = _done(driver.cuMemGetAllocationGranularity(wanted, smallest))
        size = -(-size_bytes // int(step)) * int(step)
        (handle,) = _done(driver.cuMemCreate(size, wanted, 0))
        (descriptor,) = _done(driver.cuMemExportToShareableHandle(handle, _DESCRIPTOR, 0))
        return cls(handle, size, int(descriptor))

    @classmethod
    def opened(cls, descriptor: int, size_bytes: int) -> "DeviceMemory":
        """Memory that another process made and handed over."""
        _context()
        (handle,) = _done(driver.cuMemImportFromShareableHandle(descriptor, _DESCRIPTOR))
        return cls(handle, size_bytes, descriptor)


def _context() -> None:
    """Torch's own context is the current one from here on."""
    torch.zeros(1, device="cuda")


def _location() -> "driver.CUmemLocation":
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = torch.cuda.current_device()
    return location


def _done(answer: Sequence[SupportsInt]) -> Sequence[SupportsInt]:
    """The results of a driver call; MemoryError with the driver's name for what went wrong."""
    status, results = answer[0], answer[1:]
    if int(status) != 0:
        raise MemoryError(f"shared device memory: {getattr(status, 'name', status)}")
    return results


_ALIGNMENT = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Memory(Protocol):
    """Shared bytes; `descriptor` opens them in another process."""

    @property
    def raw(self) -> Tensor:
        """All of it as bytes."""
        ...

    @property
    def descriptor(self) -> int:
        """To be handed over."""
        ...


class HostMemory:
    """An anonymous file, mapped."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.descriptor = descriptor
        # A judge that sees many guests would run out of descriptors.
        weakref.finalize(self, os.close, descriptor)
        self._map = mmap.mmap(descriptor, size_bytes)
        self.raw: Tensor = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def make(cls, size_bytes: int) -> "HostMemory":
        """Fresh memory; pages exist once they are touched."""
        descriptor = os.memfd_create("kernelwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size_bytes)
        # A guest that shortened it would end the judge with a bus error.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return cls(descriptor, size_bytes)


class Arena:
    """Hands out parts of shared memory, first fit, and takes them back.

    Args:
        memory: what is shared.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._base = memory.raw.data_ptr()
        self._free: list[tuple[int, int]] = [(0, memory.raw.numel())]

    def take(self, size_bytes: int) -> Tensor:
        """So many bytes; MemoryError when there is no gap of that size."""
        wanted = -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
        for number, (start, size) in enumerate(self._free):
            if size >= wanted:
                self._free[number] = (start + wanted, size - wanted)
                return self.memory.raw[start : start + size_bytes]
        raise MemoryError(f"the shared memory has no {size_bytes} bytes left")

    def give_back(self, part: Tensor) -> None:
        """What `take` returned; nobody may use it any more."""
        size = -(-part.numel() // _ALIGNMENT) * _ALIGNMENT
        pieces = sorted([*self._free, (self.offset(part), size)])
        merged: list[tuple[int, int]] = []
        for start, length in pieces:
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = [piece for piece in merged if piece[1]]

    def offset(self, tensor: Tensor) -> int:
        """Where a tensor begins, in bytes from the beginning."""
        return int(tensor.data_ptr() - self._base)


def place_of(arena: Arena, tensor: Tensor) -> TensorPlace:
    """Where a tensor lies that was made in the arena."""
    return TensorPlace(
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


def tensor_at(raw: Tensor, place: TensorPlace) -> Tensor:
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
