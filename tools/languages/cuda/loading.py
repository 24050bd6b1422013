"""CUDA kernels for the judge: those of the launcher, behind a check of arguments and geometry.

The launcher raises the driver's errors; here they become what a judge tells apart: a launch that
was refused without harm, and a device whose context is poisoned.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from kernelwright.tools.candidates.arithmetic import DeviceError, LaunchRefused
from kernelwright.tools.candidates.kernel_source import KernelFunction, KernelSource
from kernelwright.tools.candidates.run.arguments import Converters, Extent, Launcher
from kernelwright.tools.candidates.run.tensor_maps import TensorMap
from kernelwright.tools.languages.cuda.launcher import (
    DriverError,
    Kernel,
    encode_tensor_map,
    load_kernels,
)
from kernelwright.tools.languages.cuda.parts import cubins_of

_MAX_CLUSTER = 16
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_MAX_THREADS = 1024
# What a wrong launch gets back without harm to the context; anything else poisons it.
_REFUSALS = frozenset(
    {
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_NOT_FOUND",
    }
)


def load_cuda(
    source: KernelSource,
    artifact: Path,
    device: torch.device,
    driver: ctypes.CDLL | None = None,
) -> Mapping[str, Launcher]:
    """Every exported function of a cubin.

    Raises:
        LaunchRefused: When one is missing, or the cubin is for another architecture.
        DeviceError: When the device is in no state to load it.
    """
    torch.cuda.set_device(device)
    # Makes torch's primary context the current one of this thread, whatever ran before.
    torch.empty(1, device=device)
    loaded: dict[str, Kernel] = {}
    try:
        for cubin in cubins_of(artifact):
            held = cubin.kernels or tuple(source.letters)
            letters = {name: of for name, of in source.letters.items() if name in held}
            kernels = load_kernels(cubin.code, letters, device.index, driver, CheckedKernel)
            loaded |= {name: getattr(kernels, name) for name in letters}
    except DriverError as error:
        raise _told(error) from None
    except torch.AcceleratorError as error:  # of earlier work, seen when its end is waited for
        raise DeviceError(f"CUDA error: {error}") from None
    missing = next((item.name for item in source.functions if item.name not in loaded), None)
    if missing is not None:
        raise LaunchRefused(f"the object has no function {missing!r}")
    return {item.name: CudaFunction(loaded[item.name], item, device) for item in source.functions}


class CheckedKernel(Kernel):
    """A kernel whose launches are refused in plain words where their geometry is impossible."""

    def _configured(
        self,
        grid: Extent,
        block: Extent,
        shared: int,
        cluster: Extent,
        stream: int,
    ) -> object:
        blocks = _extent(grid, "grid", _MAX_GRID, self._name)
        threads = _extent(block, "block", _MAX_BLOCK, self._name)
        clusters = _extent(cluster, "cluster", (_MAX_CLUSTER,) * 3, self._name)
        self._check(blocks, threads, shared, clusters)
        return super()._configured(blocks, threads, shared, clusters, stream)

    def _check(
        self,
        blocks: tuple[int, int, int],
        threads: tuple[int, int, int],
        shared: int,
        clusters: tuple[int, int, int],
    ) -> None:
        if not 0 < threads[0] * threads[1] * threads[2] <= _MAX_THREADS:
            words = f"{self._name}: a block has 1 to {_MAX_THREADS} threads, not {threads}"
            raise LaunchRefused(words)
        if not isinstance(shared, int) or not 0 <= shared < 2**31:
            raise LaunchRefused(f"{self._name}: shared is a number of bytes, not {shared!r}")
        size = clusters[0] * clusters[1] * clusters[2]
        if not 0 < size <= _MAX_CLUSTER:
            raise LaunchRefused(f"{self._name}: a cluster has 1 to 16 blocks, not {clusters}")
        if any(count % part for count, part in zip(blocks, clusters, strict=True)):
            words = f"{self._name}: the grid {blocks} is no multiple of the cluster {clusters}"
            raise LaunchRefused(words)


class CudaFunction:
    """One function of a loaded cubin, as a plan launches it."""

    def __init__(self, kernel: Kernel, function: KernelFunction, device: torch.device):
        self._kernel = kernel
        self._converters = Converters(function, device, self._encoded).each

    def __call__(
        self,
        arguments: Sequence[object],
        grid: Extent = 1,
        block: Extent = 1,
        shared: int = 0,
        cluster: Extent = 1,
    ) -> None:
        """Launch on torch's current stream.

        Raises:
            LaunchRefused: When an argument or the geometry is impossible.
            DeviceError: When the device reports an error of earlier work.
        """
        converted = zip(self._converters, arguments, strict=True)
        values = [convert(value) for convert, value in converted]
        try:
            self._kernel(grid, block, shared, cluster, *values)
        except DriverError as error:
            raise _told(error) from None

    def _encoded(self, one: TensorMap) -> bytes:
        try:
            return encode_tensor_map(
                self._kernel.driver,
                one.address,
                one.dtype,
                one.shape,
                one.strides,
                one.box,
                one.swizzle,
            )
        except DriverError as error:
            raise _told(error) from None


def _told(error: DriverError) -> LaunchRefused | DeviceError:
    """The driver's error as the judge tells it."""
    if error.name in _REFUSALS:
        return LaunchRefused(str(error))
    return DeviceError(f"CUDA error: {error}")


def _extent(
    value: Extent, name: str, limits: tuple[int, int, int], kernel: str
) -> tuple[int, int, int]:
    parts = value if isinstance(value, tuple | list) else (value,)
    whole = all(isinstance(part, int) and not isinstance(part, bool) for part in parts)
    if not whole or not 1 <= len(parts) <= 3:
        raise LaunchRefused(f"{kernel}: {name} is an integer or up to three, not {value!r}")
    x, y, z = (*parts, 1, 1)[:3]
    if not all(0 <= part <= most for part, most in zip((x, y, z), limits, strict=True)):
        raise LaunchRefused(f"{kernel}: {name} {(x, y, z)} is outside of {limits}")
    return x, y, z
