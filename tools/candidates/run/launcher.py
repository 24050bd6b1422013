"""What a plan launches: the functions of a built object, whatever language they were written in."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from kernelwright.tools.candidates.source import KernelSource

Extent = int | tuple[int, ...]


class Launcher(Protocol):
    """One function of the object, called for every launch; `grid` counts blocks."""

    def __call__(
        self,
        arguments: Sequence[object],
        grid: Extent = 1,
        block: Extent = 1,
        shared: int = 0,
        cluster: Extent = 1,
    ) -> None:
        """Launch on torch's current stream, or run to the end where a language has no streams."""
        ...


class Loader(Protocol):
    """Gives the functions of a candidate's built object; a language is behind it."""

    def __call__(self, source: KernelSource, device: torch.device) -> Mapping[str, Launcher]:
        """Load the object into this process.

        Raises:
            LaunchRefused: When the object lacks a function that the source exports.
            DeviceError: When the device cannot load it.
        """
        ...
