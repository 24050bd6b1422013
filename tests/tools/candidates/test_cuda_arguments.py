"""What a CUDA launch hands to the driver, as far as it can be seen without a device."""

import ctypes

import pytest

from tools.candidates import LaunchRefused, parse_kernel
from tools.candidates.run.cuda import _extent, _Packed
from tools.nouns import Language

KERNEL = """extern "C" __global__ void f(
    float* x, int a, unsigned int b, long long c, size_t d, float e, double g, bool h) {}
"""


def slots(packed: _Packed, *types: type) -> list[object]:
    """Follow the array of addresses as the driver does, reading each parameter's own width."""
    addresses = (ctypes.c_void_p * len(types)).from_address(packed.address)
    return [
        kind.from_address(address).value for kind, address in zip(types, addresses, strict=True)
    ]


def test_every_argument_lies_where_its_address_says() -> None:
    packed = _Packed(parse_kernel(KERNEL, Language.CUDA).functions[0])
    types = (
        ctypes.c_uint64,
        ctypes.c_int32,
        ctypes.c_uint32,
        ctypes.c_int64,
        ctypes.c_uint64,
        ctypes.c_float,
        ctypes.c_double,
        ctypes.c_bool,
    )
    for values in (
        [1 << 47, -7, 1 << 31, -(1 << 40), 1 << 63, 2.5, 0.1, True],
        [0, 7, 0, 5, 0, -0.5, -1e300, False],
    ):
        packed.pack(values)
        assert slots(packed, *types) == values


def test_infinities_are_numbers_a_kernel_may_be_given() -> None:
    text = 'extern "C" __global__ void f(float e) {}'
    packed = _Packed(parse_kernel(text, Language.CUDA).functions[0])
    packed.pack([float("-inf")])
    assert slots(packed, ctypes.c_float) == [float("-inf")]


def test_a_kernel_without_parameters_packs_nothing() -> None:
    packed = _Packed(parse_kernel('extern "C" __global__ void f() {}', Language.CUDA).functions[0])
    packed.pack([])
    assert packed.address


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
