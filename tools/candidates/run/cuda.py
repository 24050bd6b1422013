"""CUDA kernels: a cubin loaded into torch's context and launched on torch's current stream.

The driver is called through cuda.bindings directly: a launch packs its arguments with one
`struct` call and passes the addresses, where a general launcher would look at every argument
again. In the driver's own launch the grid counts blocks, clusters or not, which is also what a
plan says. Not safe for two threads at once: the packed arguments are reused.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from cuda.bindings import driver

from tools.candidates.errors import DeviceError, LaunchRefused
from tools.candidates.run.arguments import Converters
from tools.candidates.run.loading import Extent, Launcher
from tools.candidates.source import KernelFunction, KernelSource, Parameter

_DEFAULT_SHARED_BYTES = 48 * 1024
_PORTABLE_CLUSTER = 8
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


def load_cuda(source: KernelSource, artifact: Path, device: torch.device) -> Mapping[str, Launcher]:
    """Every exported function of a cubin.

    Raises:
        LaunchRefused: When one is missing, or the cubin is for another architecture.
        DeviceError: When the device is in no state to load it.
    """
    torch.cuda.set_device(device)
    # Makes torch's primary context the current one of this thread, whatever ran before.
    torch.empty(1, device=device)
    module = _checked(driver.cuModuleLoadData(artifact.read_bytes()), "the cubin cannot be loaded")
    return {item.name: CudaFunction(module, item, device) for item in source.functions}


class CudaFunction:
    """One function of a loaded cubin."""

    def __init__(self, module: object, function: KernelFunction, device: torch.device):
        self._name = function.name
        # The module must outlive its functions.
        self._module = module
        found = driver.cuModuleGetFunction(module, function.name.encode())
        self._handle = _checked(found, f"the cubin has no function {function.name!r}")
        self._device_index = device.index
        self._convert = Converters(function, device)
        self._packed = _Packed(function)
        self._geometry: tuple[Extent, Extent, int, Extent] | None = None
        self._config = driver.CUlaunchConfig()
        # The default covers a kernel's static shared memory too.
        self._shared_limit = _DEFAULT_SHARED_BYTES - self._static_shared_bytes()
        self._stream = -1
        self._empty = False

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
        if (grid, block, shared, cluster) != self._geometry:
            self._configure(grid, block, shared, cluster)
        values = self._convert(arguments)
        if self._empty:
            return
        stream = torch._C._cuda_getCurrentRawStream(self._device_index)
        if stream != self._stream:
            self._config.hStream = driver.CUstream(stream)
            self._stream = stream
        self._packed.pack(values)
        launched = driver.cuLaunchKernelEx(self._config, self._handle, self._packed.address, 0)
        if launched[0]:
            _checked(launched, f"{self._name} could not be launched")

    def _configure(self, grid: Extent, block: Extent, shared: int, cluster: Extent) -> None:
        self._geometry = None
        blocks = _extent(grid, "grid", _MAX_GRID, self._name)
        threads = _extent(block, "block", _MAX_BLOCK, self._name)
        clusters = _extent(cluster, "cluster", (_MAX_CLUSTER,) * 3, self._name)
        self._check(blocks, threads, shared, clusters)
        self._empty = 0 in blocks
        config = self._config
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks
        config.blockDimX, config.blockDimY, config.blockDimZ = threads
        config.sharedMemBytes = shared
        self._allow_shared(shared)
        self._set_cluster(clusters)
        self._geometry = (grid, block, shared, cluster)

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
        if not isinstance(shared, int) or shared < 0:
            raise LaunchRefused(f"{self._name}: shared is a number of bytes, not {shared!r}")
        size = clusters[0] * clusters[1] * clusters[2]
        if not 0 < size <= _MAX_CLUSTER:
            raise LaunchRefused(f"{self._name}: a cluster has 1 to 16 blocks, not {clusters}")
        if any(count % part for count, part in zip(blocks, clusters, strict=True)):
            words = f"{self._name}: the grid {blocks} is no multiple of the cluster {clusters}"
            raise LaunchRefused(words)

    def _allow_shared(self, shared: int) -> None:
        if shared <= self._shared_limit:
            return
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        words = f"{self._name}: {shared} bytes of shared memory are more than the device gives"
        _checked(driver.cuFuncSetAttribute(self._handle, attribute, shared), words)
        self._shared_limit = shared

    def _static_shared_bytes(self) -> int:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        found = driver.cuFuncGetAttribute(attribute, self._handle)
        size = _checked(found, f"{self._name} cannot be asked for its shared memory")
        return size if isinstance(size, int) else 0

    def _set_cluster(self, clusters: tuple[int, int, int]) -> None:
        size = clusters[0] * clusters[1] * clusters[2]
        if size == 1:
            # An explicit cluster of one would refuse a kernel that fixes its own.
            self._config.attrs, self._config.numAttrs = [], 0
            return
        if size > _PORTABLE_CLUSTER:
            wide = driver.CUfunction_attribute
            allow = wide.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            words = f"{self._name}: this device has no clusters of {size}"
            _checked(driver.cuFuncSetAttribute(self._handle, allow, 1), words)
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension = attribute.value.clusterDim
        dimension.x, dimension.y, dimension.z = clusters
        self._config.attrs, self._config.numAttrs = [attribute], 1


class _Packed:
    """A launch's arguments in memory as the driver wants them: an array of their addresses."""

    def __init__(self, function: KernelFunction):
        count = max(1, len(function.parameters))
        # Eight bytes a parameter, whatever its width: the driver reads what the kernel declares.
        self._layout = struct.Struct("<" + "".join(map(_slot, function.parameters)))
        self._memory = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self._memory)
        self._addresses = (ctypes.c_void_p * count)(*(first + 8 * index for index in range(count)))
        self.address = ctypes.addressof(self._addresses)

    def pack(self, values: Sequence[int | float]) -> None:
        """Write the values of the next launch; the driver copies them when it is made."""
        self._layout.pack_into(self._memory, 0, *values)


def _slot(parameter: Parameter) -> str:
    scalar = parameter.scalar
    if scalar is None:
        return "Q"
    return scalar.code + "x" * (8 - scalar.size_bytes)


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


def _checked(answer: Sequence[object], words: str) -> object:
    """The value of a driver call; the driver's name of the error when it failed."""
    status = answer[0]
    if status == driver.CUresult.CUDA_SUCCESS:
        return answer[1] if len(answer) > 1 else None
    name = getattr(status, "name", str(status))
    if name in _REFUSALS:
        raise LaunchRefused(f"{words} ({name})")
    raise DeviceError(f"CUDA error: {words} ({name})")
