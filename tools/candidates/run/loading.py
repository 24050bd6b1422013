"""The seam behind which a language hides: a built object becomes functions that can be launched."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from tools.candidates.source import KernelSource
from tools.compile import Built
from tools.nouns import Language

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
        """Launch on the current stream of torch's (CUDA), or run to the end (C++)."""
        ...


def load(source: KernelSource, built: Built, device: torch.device) -> Mapping[str, Launcher]:
    """Load an object into this process.

    Raises:
        LaunchRefused: When the object lacks a function that the source exports.
        DeviceError: When the device cannot load it.
    """
    if source.language is Language.CUDA:
        from tools.candidates.run.cuda import load_cuda

        return load_cuda(source, built.artifact, device)
    from tools.candidates.run.cpp import load_cpp

    return load_cpp(source, built.artifact)
