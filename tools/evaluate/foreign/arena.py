"""Memory that judge and guest both see: the judge makes it, the guest gets a descriptor.

On the CPU an anonymous file that cannot be resized by anybody, on a GPU device memory exported as
a descriptor. A descriptor passes walls that names and process ids do not.
"""

import fcntl
import mmap
import os
import weakref
from typing import Protocol

import torch
from torch import Tensor

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
