"""Where a plan's memory comes from: a seam, so that a judge can poison and guard it."""

from typing import Protocol

import torch


class Allocator(Protocol):
    """Gives uninitialised, contiguous tensors to `empty`, `zeros` and their relatives."""

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """A contiguous tensor whose contents may be anything."""
        ...


class TorchAllocator:
    """torch's own allocator."""

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """See Allocator."""
        return torch.empty(shape, dtype=dtype, device=device)
