"""What the judge's CUDA launch hands to the driver, as far as it can be seen without one."""

import ctypes

import pytest
import torch

from kernelwright.tools.candidates import DeviceError, LaunchRefused
from kernelwright.tools.candidates.run.tensor_maps import TensorMaps
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.languages.cuda import launcher
from kernelwright.tools.languages.cuda.loading import CheckedKernel, CudaFunction, _extent

KERNEL = """extern "C" __global__ void f(
    int a, unsigned int b, long long c, size_t d, float e, double g, bool h) {}
"""
KINDS = (
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_int64,
    ctypes.c_uint64,
    ctypes.c_float,
    ctypes.c_double,
    ctypes.c_bool,
)


class FakeDriver:
    """Reads a launch as the driver does, each parameter at its own width."""

    def __init__(self) -> None:
        self.launches: list[list[object]] = []
        self.answers: dict[str, int] = {}

    def cuLaunchKernelEx(self, config, function, addresses, extra):  # type: ignore[no-untyped-def]  # noqa: N802
        pairs = zip(KINDS, addresses._obj, strict=False)
        self.launches.append([kind.from_address(at).value for kind, at in pairs])
        return self.answers.get("launch", 0)

    def cuFuncGetAttribute(self, *_: object) -> int:  # noqa: N802
        return 0

    def cuFuncSetAttribute(self, *_: object) -> int:  # noqa: N802
        return self.answers.get("set", 0)

    def cuGetErrorName(self, status, place):  # type: ignore[no-untyped-def]  # noqa: N802
        place._obj.value = {1: b"CUDA_ERROR_INVALID_VALUE", 700: b"CUDA_ERROR_ILLEGAL_ADDRESS"}[
            status
        ]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr("torch._C._cuda_getCurrentRawStream", lambda _: 7, raising=False)
    return FakeDriver()


def function(driver: FakeDriver, text: str = KERNEL) -> CudaFunction:
    (parsed,) = parse_kernel(text, "cuda").functions
    kernel = CheckedKernel(driver, parsed.name, ctypes.c_void_p(1), parsed.letters, 0)  # type: ignore[arg-type]
    return CudaFunction(kernel, parsed, torch.device("cpu"))


def test_every_argument_lies_where_its_address_says(driver: FakeDriver) -> None:
    launch = function(driver)
    for values in (
        [-7, 1 << 31, -(1 << 40), 1 << 63, 2.5, 0.1, True],
        [7, 0, 5, 0, -0.5, -1e300, False],
        [7, 0, 5, 0, float("-inf"), float("inf"), False],
    ):
        launch(values, 2, 32)
        assert driver.launches[-1] == values


MAPPED = """extern "C" __global__ void f(
    int n, const __grid_constant__ kw::TensorMap m, float* y,
    const __grid_constant__ kw::TensorMap again) {}
"""


class MapDriver(FakeDriver):
    """Encodes a map as its address, rank, box and strides."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[list[object]] = []

    def cuTensorMapEncodeTiled(self, place, kind, rank, start, *more):  # type: ignore[no-untyped-def]  # noqa: N802
        assert place.value % 64 == 0
        self.encoded.append([kind, rank, start.value, *map(list, more[:4]), *more[4:]])
        ctypes.memset(place, len(self.encoded), 128)
        return self.answers.get("map", 0)

    def cuLaunchKernelEx(self, config, function, addresses, extra):  # type: ignore[no-untyped-def]  # noqa: N802
        n, m, y, again = addresses._obj
        assert m % 64 == again % 64 == 0
        numbers = ctypes.c_int32.from_address(n).value, ctypes.c_uint64.from_address(y).value
        self.launches.append([*numbers, ctypes.string_at(m, 128), ctypes.string_at(again, 128)])
        return 0


@pytest.fixture
def maps(driver: FakeDriver) -> MapDriver:
    return MapDriver()


def test_a_tensor_map_lies_whole_among_the_arguments_and_is_encoded_once(maps: MapDriver) -> None:
    launch, words = function(maps, MAPPED), TensorMaps()
    x, y = torch.zeros(3, 40, 64, dtype=torch.float16), torch.zeros(4)
    for n in (5, 6):
        one, two = words(x, box=(1, 32, 64)), words(x[1], box=(8, 16), swizzle=32)
        launch([n, one, y, two], 1, 32)
        assert maps.launches[-1] == [n, y.data_ptr(), b"\1" * 128, b"\2" * 128]
    first, second = maps.encoded
    begin = x.data_ptr()
    assert first == [6, 3, begin, [64, 40, 3], [128, 5120], [64, 32, 1], [1, 1, 1], 0, 3, 3, 0]
    assert second == [6, 2, begin + 5120, [64, 40], [128], [16, 8], [1, 1], 0, 1, 3, 0]


def test_what_is_no_map_is_refused_and_so_is_what_the_driver_refuses(maps: MapDriver) -> None:
    launch, y = function(maps, MAPPED), torch.zeros(4)
    one = TensorMaps()(torch.zeros(8, 8), box=(8, 8))
    with pytest.raises(
        LaunchRefused, match=r"kw::TensorMap m takes tensor_map\(...\), not a float32"
    ):
        launch([5, y, y, one], 1, 32)
    maps.answers = {"map": 1}
    with pytest.raises(LaunchRefused, match="a tensor map cannot be made"):
        launch([5, one, y, one], 1, 32)
    assert maps.launches == []


def test_an_export_makes_the_same_maps_as_the_judge(maps: MapDriver) -> None:
    exported, x = launcher.TensorMaps(maps), torch.zeros(3, 40, 64)  # type: ignore[arg-type]
    judged = TensorMaps()
    for given in (
        {"box": (1, 8, 32)},
        {"box": (8, 32), "shape": (40, 64), "offset": 2560},
        {"box": (8, 16), "shape": (40, 32), "strides": (64, 1), "swizzle": 64},
    ):
        one = judged(x, **given)
        launcher.encode_tensor_map(
            maps, one.address, one.dtype, one.shape, one.strides, one.box, one.swizzle  # type: ignore[arg-type]
        )  # fmt: skip
        assert exported(x, **given) is exported(x, **given)  # type: ignore[arg-type]
        assert maps.encoded[-1] == maps.encoded[-2]


def test_a_kernel_without_parameters_is_launched(driver: FakeDriver) -> None:
    function(driver, 'extern "C" __global__ void f() {}')([], 1, 32)
    assert len(driver.launches) == 1


def test_an_empty_grid_launches_nothing_but_its_arguments_are_checked(driver: FakeDriver) -> None:
    launch = function(driver, 'extern "C" __global__ void f(int n) {}')
    launch([5], 0, 32)
    assert driver.launches == []
    with pytest.raises(LaunchRefused, match="takes an integer"):
        launch([0.5], 0, 32)


@pytest.mark.parametrize(
    ("geometry", "words"),
    [
        ({"block": 2048}, "block"),
        ({"block": (64, 32)}, "1 to 1024 threads"),
        ({"grid": 3, "block": 32, "cluster": 2}, "no multiple of the cluster"),
        ({"block": 32, "shared": -1}, "number of bytes"),
        ({"block": 32, "shared": 1 << 40}, "number of bytes"),
        ({"grid": 32, "block": 32, "cluster": 32}, "cluster"),
    ],
)
def test_an_impossible_geometry_is_refused_in_plain_words(
    driver: FakeDriver, geometry: dict[str, int], words: str
) -> None:
    launch = function(driver, 'extern "C" __global__ void f(int n) {}')
    with pytest.raises(LaunchRefused, match=words):
        launch([5], **geometry)
    assert driver.launches == []


def test_what_the_driver_refuses_and_what_poisons_the_device_are_told_apart(
    driver: FakeDriver,
) -> None:
    launch = function(driver, 'extern "C" __global__ void f(int n) {}')
    driver.answers = {"set": 1}
    with pytest.raises(LaunchRefused, match=r"more than the device gives \(CUDA_ERROR_INVALID"):
        launch([5], 1, 32, 1 << 20)
    driver.answers = {"launch": 1}
    with pytest.raises(LaunchRefused, match=r"could not be launched \(CUDA_ERROR_INVALID_VALUE\)"):
        launch([5], 1, 32)
    driver.answers = {"launch": 700}
    with pytest.raises(DeviceError, match=r"CUDA error: .*CUDA_ERROR_ILLEGAL_ADDRESS"):
        launch([5], 1, 32)


def test_a_geometry_has_up_to_three_extents() -> None:
    limits = (100, 10, 10)
    assert _extent(5, "grid", limits, "k") == (5, 1, 1)
    assert _extent((5, 6), "grid", limits, "k") == (5, 6, 1)
    assert _extent((5, 6, 7), "grid", limits, "k") == (5, 6, 7)
    assert _extent((0, 6), "grid", limits, "k") == (0, 6, 1)


@pytest.mark.parametrize("value", [-1, 101, (1, 11), (1, 1, 1, 1), (), 1.0, "1", True, (1, None)])
def test_any_other_geometry_is_refused(value: object) -> None:
    with pytest.raises(LaunchRefused, match="k: grid"):
        _extent(value, "grid", (100, 10, 10), "k")  # type: ignore[arg-type]
