"""Loads CUDA kernels and launches them through the driver, called by ctypes.

The judge imports this file, and an export holds its text: it uses nothing of Kernelwright's. A
launch costs about two microseconds of Python, less than an operator of PyTorch's own. In the
driver's own launch the grid counts blocks, clusters or not, which is also what a plan says. Tensor
maps are encoded by the driver too, each once.
"""

import ctypes
import struct
from types import SimpleNamespace

import torch

# --- exported from here ---


class DriverError(RuntimeError):
    """The driver refused a call; `name` is its own name of the error."""

    def __init__(self, words: str, name: str) -> None:
        super().__init__(f"{words} ({name})")
        self.words = words
        self.name = name


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
SHARED_SIZE_BYTES = 1  # CU_FUNC_ATTRIBUTE_...
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_...
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # CU_FUNC_ATTRIBUTE_...
SHARED_WITHOUT_ASKING_BYTES = 48 * 1024
PORTABLE_CLUSTER = 8
FREE = "free"
MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of CUtensorMap
MOST_MAPS = 256  # that are kept, where tensors come from ever new places
# CU_TENSOR_MAP_DATA_TYPE_..., CU_TENSOR_MAP_SWIZZLE_..., CU_TENSOR_MAP_L2_PROMOTION_L2_256B
MAP_TYPES = {
    torch.bool: 0,
    torch.int8: 0,
    torch.uint8: 0,
    torch.int16: 1,
    torch.int32: 3,
    torch.int64: 5,
    torch.float16: 6,
    torch.float8_e4m3fn: 0,  # bytes
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
}
MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
MAP_PROMOTION = 3


def error_name(driver: ctypes.CDLL, status: int) -> str:
    """The driver's own name of an error."""
    words = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(words))
    return (words.value or b"unknown error").decode()


def call_driver(driver: ctypes.CDLL, words: str, name: str, *arguments: object) -> None:
    """Call a function of the driver's; DriverError with these words where it refuses."""
    status = getattr(driver, name)(*arguments)
    if status:
        raise DriverError(words, error_name(driver, status))


def laid_out(letters: str) -> tuple[str, list[int]]:
    """A format of the `struct` module for a kernel's arguments, and where each of them begins.

    Eight bytes a number, whatever its width: the driver reads what the kernel declares.
    """
    layout, places, size = "=", [], 0
    for letter in letters.replace("P", "Q"):
        is_map = letter == "M"
        gap = -size % MAP_ALIGNMENT if is_map else 0
        code = f"{MAP_BYTES}s" if is_map else letter
        width = MAP_BYTES if is_map else 8
        layout += f"{gap}x{code}{width - struct.calcsize('=' + code)}x"
        places.append(size + gap)
        size += gap + width
    return layout, places


def encode_tensor_map(
    driver: ctypes.CDLL,
    address: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
) -> bytes:
    """The driver's description of a tensor for the copy engine.

    Args:
        driver: The CUDA driver's library.
        address: The first element's.
        dtype: The elements' type.
        shape: Elements along each dimension, the contiguous one last.
        strides: Elements from one to the next along each dimension.
        box: Elements of one copy along each dimension.
        swizzle: 0, 32, 64 or 128 bytes.

    Raises:
        DriverError: When the driver refuses.
    """
    memory = (ctypes.c_uint8 * (MAP_BYTES + MAP_ALIGNMENT))()
    place = ctypes.addressof(memory) + -ctypes.addressof(memory) % MAP_ALIGNMENT
    rank = len(shape)
    steps = [step * dtype.itemsize for step in strides[-2::-1]]
    call_driver(
        driver,
        "a tensor map cannot be made",
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(place),
        MAP_TYPES[dtype],
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*shape[::-1]),
        (ctypes.c_uint64 * (rank - 1))(*steps),
        (ctypes.c_uint32 * rank)(*box[::-1]),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,  # no interleaving
        MAP_SWIZZLES[swizzle],
        MAP_PROMOTION,
        0,  # what lies outside is zero
    )
    return ctypes.string_at(place, MAP_BYTES)


class TensorMaps:
    """Makes tensor maps for a plan, each once for a tensor at one place."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        self._known: dict[tuple[object, ...], bytes] = {}

    def __call__(
        self,
        tensor: torch.Tensor,
        box: tuple[int, ...],
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        swizzle: int = 128,
    ) -> bytes:
        """The map of a tensor, or of the part that shape, strides and offset say."""
        own = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
        key = (*own, box, shape, strides, offset, swizzle)
        found = self._known.get(key)
        if found is None:
            sizes = tuple(tensor.shape) if shape is None else shape
            steps = strides or (tensor if shape is None else tensor.new_empty(sizes)).stride()
            address = tensor.data_ptr() + offset * tensor.element_size()
            found = encode_tensor_map(
                self._driver, address, tensor.dtype, sizes, steps, box, swizzle
            )
            if len(self._known) >= MOST_MAPS:
                self._known.clear()
            self._known[key] = found
        return found


def three(extent: int | tuple[int, ...]) -> tuple[int, int, int]:
    """A grid, block or cluster in all three dimensions."""
    if isinstance(extent, int):
        return extent, 1, 1
    x, y, z = (*extent, 1, 1)[:3]
    return x, y, z


class Kernel:
    """One kernel on one device; called with grid, block, shared bytes, cluster and arguments.

    Args:
        driver: The CUDA driver's library.
        name: The kernel's, for errors.
        function: The driver's handle of it.
        letters: Its parameters: `P` a pointer, `M` a tensor map, else the letter of the `struct`
            module.
        index: The device, as torch counts.

    Attributes:
        driver: The CUDA driver's library.
    """

    def __init__(
        self, driver: ctypes.CDLL, name: str, function: ctypes.c_void_p, letters: str, index: int
    ) -> None:
        self.driver, self._name, self._function, self._index = driver, name, function, index
        # What ctypes would make of the handle for every launch again.
        self._launch, self._handle = (
            driver.cuLaunchKernelEx,
            ctypes.c_void_p.from_param(function.value),
        )
        layout, self._places = laid_out(letters)
        self._size = max(8, struct.calcsize(layout))
        self._pack = struct.Struct(layout).pack_into
        # Packed arguments that no launch uses now: each launch takes its own, because another
        # thread may launch the same kernel meanwhile. To take them from a dictionary is one step
        # for all threads, and needs no exception where there are none.
        self._free = {FREE: self._slot()}
        # The default covers a kernel's static shared memory too.
        self._shared_bytes = SHARED_WITHOUT_ASKING_BYTES - self._static_shared_bytes()
        self._cluster = PORTABLE_CLUSTER
        # The last launch's geometry and stream, and what the driver reads of them; one value, so
        # that threads see both or neither.
        self._last: tuple[object, object] = (None, None)

    def __call__(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared: int,
        cluster: int | tuple[int, ...],
        *values: float | bytes,
    ) -> None:
        """Launch on torch's current stream of the kernel's device.

        Raises:
            DriverError: When the driver refuses.
        """
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        known, config = self._last
        if known != (grid, block, shared, cluster, stream):
            config = self._configured(grid, block, shared, cluster, stream)
            self._last = (grid, block, shared, cluster, stream), config
        if config is None:
            return
        slot = self._free.pop(FREE, None) or self._slot()
        self._pack(slot[0], slot[2], *values)
        status = self._launch(config, self._handle, slot[1], None)
        self._free[FREE] = slot
        if status:
            words = f"{self._name} could not be launched"
            raise DriverError(words, error_name(self.driver, status))

    def _slot(self) -> tuple[ctypes.Array[ctypes.c_uint8], object, int]:
        """Memory for one launch's arguments, their addresses for the driver, where they begin."""
        memory = (ctypes.c_uint8 * (self._size + MAP_ALIGNMENT))()
        start = -ctypes.addressof(memory) % MAP_ALIGNMENT
        first = ctypes.addressof(memory) + start
        addresses = [first + place for place in self._places or (0,)]
        return memory, ctypes.byref((ctypes.c_uint64 * len(addresses))(*addresses)), start

    def _configured(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared: int,
        cluster: int | tuple[int, ...],
        stream: int,
    ) -> object:
        """What the driver reads of a launch beside its arguments; nobody writes to it again.

        None where the grid is empty, and nothing is to be launched.
        """
        blocks, clusters = three(grid), three(cluster)
        size = clusters[0] * clusters[1] * clusters[2]
        if 0 in blocks:
            return None
        self._ask_for_more(shared, size)
        config = LaunchConfig(grid=blocks, block=three(block), shared_bytes=shared, stream=stream)
        # An explicit cluster of one would refuse a kernel that fixes its own.
        if size > 1:
            attribute = LaunchAttribute(id=CLUSTER_DIMENSION)
            attribute.value[0:3] = clusters
            config.attributes, config.attribute_count = ctypes.pointer(attribute), 1
        return ctypes.byref(config)

    def _ask_for_more(self, shared: int, cluster: int) -> None:
        """More shared memory or a larger cluster than a kernel has by default."""
        if shared > self._shared_bytes:
            words = f"{shared} bytes of shared memory are more than the device gives"
            self._set(words, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            self._shared_bytes = shared
        if cluster > self._cluster:
            words = f"this device has no clusters of {cluster}"
            self._set(words, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
            self._cluster = cluster

    def _set(self, words: str, attribute: int, value: int) -> None:
        words = f"{self._name}: {words}"
        call_driver(self.driver, words, "cuFuncSetAttribute", self._function, attribute, value)

    def _static_shared_bytes(self) -> int:
        size = ctypes.c_int()
        words = f"{self._name} cannot be asked for its shared memory"
        place = ctypes.byref(size)
        call_driver(
            self.driver, words, "cuFuncGetAttribute", place, SHARED_SIZE_BYTES, self._function
        )
        return size.value


def load_kernels(
    cubin: bytes,
    signatures: dict[str, str],
    index: int,
    driver: ctypes.CDLL | None = None,
    kind: type[Kernel] = Kernel,
) -> SimpleNamespace:
    """The kernels of a cubin as attributes, on one device; they stay loaded with the process.

    Beside them stand `device` and `tensor_map`, which makes tensor maps.

    Args:
        cubin: What NVRTC made.
        signatures: For every kernel, its parameters as letters: `P` a pointer, `M` a tensor
            map, else the letter of the `struct` module for the C type.
        index: The device, as torch counts.
        driver: The CUDA driver's library; found by its name when left out.
        kind: What a kernel is made as.

    Raises:
        DriverError: When the driver cannot load it, or it has no such kernel.
    """
    driver = driver or ctypes.CDLL("libcuda.so.1")
    kernels = SimpleNamespace(device=torch.device("cuda", index), tensor_map=TensorMaps(driver))
    with torch.cuda.device(index):
        torch.cuda.current_stream().synchronize()  # makes torch's context, where there is none
        module = ctypes.c_void_p()
        words = "the cubin cannot be loaded"
        call_driver(driver, words, "cuModuleLoadData", ctypes.byref(module), cubin)
        for name, letters in signatures.items():
            function = ctypes.c_void_p()
            words = f"the cubin has no function {name!r}"
            place = ctypes.byref(function)
            call_driver(driver, words, "cuModuleGetFunction", place, module, name.encode())
            setattr(kernels, name, kind(driver, name, function, letters, index))
    return kernels
