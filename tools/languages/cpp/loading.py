"""C++ kernels for the judge: those of the launcher, behind a check of every argument.

A kernel that crashes takes the process with it, which is why this only happens in workers.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from kernelwright.tools.candidates.arithmetic import LaunchRefused
from kernelwright.tools.candidates.kernel_source import KernelFunction, KernelSource
from kernelwright.tools.candidates.run.arguments import Converters, Extent, Launcher
from kernelwright.tools.languages.cpp.launcher import load_kernels


def load_cpp(source: KernelSource, artifact: Path) -> Mapping[str, Launcher]:
    """Every exported function of a shared object.

    Raises:
        LaunchRefused: When one is missing.
    """
    try:
        kernels = load_kernels(artifact, source.letters)
    except AttributeError as error:
        raise LaunchRefused(f"the object lacks a function ({error})") from None
    return {item.name: CppFunction(getattr(kernels, item.name), item) for item in source.functions}


class CppFunction:
    """One function of a shared object."""

    def __init__(self, call: Callable[..., None], function: KernelFunction):
        self._call = call
        self._convert = Converters(function, torch.device("cpu"))

    def __call__(
        self,
        arguments: Sequence[object],
        grid: Extent = 1,
        block: Extent = 1,
        shared: int = 0,
        cluster: Extent = 1,
    ) -> None:
        """Run to the end; the launch geometry does not apply."""
        self._call(*self._convert(arguments))
