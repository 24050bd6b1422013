"""Compiles CUDA kernels with NVRTC at first use and launches them through the driver.

The driver is called by ctypes: a launch then costs about two microseconds of Python, less than
an operator of PyTorch's own. What is not covered: kernels that need separate linking.
"""

import ctypes
import struct
from types import SimpleNamespace

import torch

# --- exported from here ---


class KernelUnavailableError(RuntimeError):
    """The kernels cannot be built or loaded on this machine; the message says why."""


class LaunchAttribute(ctypes.Structure):
    """The driver's CUlaunchAttribute, for a cluster's dimensions only."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("pad", ctypes.c_uint),
        ("value", ctypes.c_uint * 16),
    )


class LaunchConfig(ctypes.Structure):
    """The driver's CUlaunchConfig; the grid counts blocks, not clusters."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_...
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # CU_FUNC_ATTRIBUTE_...
SHARED_WITHOUT_ASKING_BYTES = 48 * 1024
PORTABLE_CLUSTER = 8


def call_driver(driver: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Call a function of the driver's; RuntimeError with the driver's own name of the error."""
    status = getattr(driver, name)(*arguments)
    if status:
        words = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(words))
        raise RuntimeError(f"{name}: {(words.value or b'unknown error').decode()}")


def three(extent: int | tuple[int, ...]) -> tuple[int, int, int]:
    """A grid or block in all three dimensions."""
    if isinstance(extent, int):
        return extent, 1, 1
    x, y, z = (*extent, 1, 1)[:3]
    return x, y, z


class Kernel:
    """One kernel on one device; called with grid, block, shared bytes, cluster and arguments."""

    def __init__(
        self, driver: ctypes.CDLL, function: ctypes.c_void_p, letters: str, index: int
    ) -> None:
        self._driver, self._function, self._index = driver, function, index
        # Eight bytes an argument, whatever its width, and behind them the address of each.
        plain = letters.replace("P", "Q")
        slots = [f"{letter}{8 - struct.calcsize('=' + letter)}x" for letter in plain]
        self._pack = struct.Struct(f"={''.join(slots)}{len(letters)}Q").pack_into
        self._offsets = range(0, 8 * len(letters), 8)
        self._memory = ctypes.c_uint64 * (2 * len(letters) or 1)
        self._shared_bytes = SHARED_WITHOUT_ASKING_BYTES
        self._cluster = PORTABLE_CLUSTER
        # The last launch's geometry and stream, and what the driver reads of them; one value, so
        # that threads see both or neither.
        self._last: tuple[object, object] = (None, None)

    def __call__(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared: int,
        cluster: int,
        *values: float,
    ) -> None:
        """Launch on torch's current stream of the kernel's device."""
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        known, config = self._last
        if known != (grid, block, shared, cluster, stream):
            config = self._configured(grid, block, shared, cluster, stream)
            self._last = (grid, block, shared, cluster, stream), config
        memory = self._memory()  # of this call alone: other threads may launch the same kernel
        base = ctypes.addressof(memory)
        self._pack(memory, 0, *values, *[base + offset for offset in self._offsets])
        addresses = ctypes.c_void_p(base + 8 * len(values))
        status = self._driver.cuLaunchKernelEx(config, self._function, addresses, None)
        if status:
            call_driver(self._driver, "cuCtxSynchronize")  # an older error is the better message
            raise RuntimeError(f"the driver refused to launch a kernel (error {status})")

    def _configured(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared: int,
        cluster: int,
        stream: int,
    ) -> object:
        """What the driver reads of a launch beside its arguments; nobody writes to it again."""
        self._ask_for_more(shared, cluster)
        config = LaunchConfig(
            grid=three(grid), block=three(block), shared_bytes=shared, stream=stream
        )
        if cluster > 1:
            attribute = LaunchAttribute(id=CLUSTER_DIMENSION)
            attribute.value[0:3] = (cluster, 1, 1)
            config.attributes, config.attribute_count = ctypes.pointer(attribute), 1
        return ctypes.byref(config)

    def _ask_for_more(self, shared: int, cluster: int) -> None:
        """More shared memory or a larger cluster than a kernel has by default."""
        if shared > self._shared_bytes:
            self._set(MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            self._shared_bytes = shared
        if cluster > self._cluster:
            self._set(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
            self._cluster = cluster

    def _set(self, attribute: int, value: int) -> None:
        call_driver(self._driver, "cuFuncSetAttribute", self._function, attribute, value)


def compile_cubin(source: str, header: str, architecture: str) -> bytes:
    """Compile with NVRTC; needs no GPU.

    Args:
        source: The kernels' text.
        header: The text of kernelwright.cuh, which the kernels include.
        architecture: As NVRTC names it, for example "sm_90a".

    Raises:
        KernelUnavailableError: When NVRTC refuses, with what it said.
    """
    import tempfile
    from pathlib import Path

    from cuda import pathfinder
    from cuda.core import Program, ProgramOptions

    found = (pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernelwright.cuh").write_text(header, encoding="utf-8")
        options = ProgramOptions(
            name="kernel.cu",
            std="c++17",
            arch=architecture,
            include_path=[folder, *(str(path) for path in found if path)],
            lineinfo=True,
            no_source_include=True,
        )
        code = Program(source, code_type="c++", options=options).compile("cubin").code
    return bytes(code)


def load_kernels(
    cubin: bytes, signatures: dict[str, str], index: int, driver: ctypes.CDLL | None = None
) -> SimpleNamespace:
    """The kernels of a cubin as attributes, on one device.

    Args:
        cubin: What NVRTC made.
        signatures: For every kernel, its parameters as letters: `P` a pointer, else the letter
            of the `struct` module for the C type.
        index: The device, as torch counts.
        driver: The CUDA driver's library; found by its name when left out.
    """
    driver = driver or ctypes.CDLL("libcuda.so.1")
    kernels = SimpleNamespace(device=torch.device("cuda", index))
    with torch.cuda.device(index):
        torch.cuda.current_stream().synchronize()  # makes torch's context, where there is none
        module = ctypes.c_void_p()
        call_driver(driver, "cuModuleLoadData", ctypes.byref(module), cubin)
        for name, letters in signatures.items():
            function = ctypes.c_void_p()
            call_driver(
                driver, "cuModuleGetFunction", ctypes.byref(function), module, name.encode()
            )
            setattr(kernels, name, Kernel(driver, function, letters, index))
    return kernels
