"""Device memory that two processes map: made by the judge, opened in a guest by a descriptor.

CUDA's virtual memory interface exports an allocation as a file descriptor, which works between
processes that cannot name each other; nothing is pickled, and no other memory can be reached.
"""

from collections.abc import Sequence
from typing import SupportsInt

import torch
from cuda.bindings import driver
from torch import Tensor

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
