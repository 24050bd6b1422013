"""Tensor maps are refused in one sentence wherever no copy engine would take them."""

import pytest
import torch

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.run.tensor_maps import TensorMaps


@pytest.fixture
def x() -> torch.Tensor:
    return torch.zeros(96, 64, dtype=torch.float16)


def test_a_map_is_the_whole_tensor_unless_told(x: torch.Tensor) -> None:
    one = TensorMaps()(x, box=(64, 64))
    assert (one.shape, one.strides, one.box, one.swizzle) == ((96, 64), (64, 1), (64, 64), 128)
    assert (one.address, one.device) == (x.data_ptr(), -1)


def test_a_part_is_said_by_shape_strides_and_offset(x: torch.Tensor) -> None:
    one = TensorMaps()(
        x, box=(1, 8, 32), shape=(3, 32, 24), strides=(2048, 64, 1), offset=8, swizzle=64
    )
    assert (one.shape, one.strides) == ((3, 32, 24), (2048, 64, 1))
    assert one.address == x.data_ptr() + 16


def test_a_map_is_made_once_for_a_tensor_at_one_place(x: torch.Tensor) -> None:
    maps = TensorMaps()
    assert maps(x, box=(64, 64)) is maps(x, box=(64, 64))
    assert maps(x, box=(64, 64)) is not maps(x, box=(32, 64))
    assert maps(x, box=(64, 64)) is not maps(x[8:], box=(64, 64))
    assert maps(x, box=(64, 64)) is not maps(x.view(torch.int16), box=(64, 64))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "box is a tuple of whole numbers, not None"),
        ({"box": [64, 64]}, "are tuples of whole numbers"),
        ({"box": (64, True)}, "box is a tuple of whole numbers"),
        ({"box": (64,)}, "one number for each dimension"),
        ({"box": (64, 0)}, "outside of 1 to 256"),
        ({"box": (257, 64)}, "outside of 1 to 256"),
        ({"box": (8, 4)}, "no multiple of 16 bytes"),
        ({"box": (8, 72)}, "longer than the swizzle's 128 bytes"),
        ({"box": (8, 64), "swizzle": 64}, "longer than the swizzle's 64 bytes"),
        ({"box": (8, 64), "swizzle": 100}, "swizzle is 0, 32, 64 or 128"),
        ({"box": (8, 64), "offset": -8}, "offset is a number of elements"),
        ({"box": (8, 64), "offset": 8}, "reaches element 6151 of a tensor that ends with element"),
        ({"box": (8, 64), "offset": 4, "shape": (2, 8)}, "begins at no multiple of 16 bytes"),
        ({"box": (8,), "shape": (64,)}, "2 to 5 dimensions, not 1"),
        ({"box": (1,) * 6, "shape": (1,) * 6}, "2 to 5 dimensions, not 6"),
        ({"box": (8, 8), "shape": (0, 64)}, "empty or too large"),
        ({"box": (8, 8), "shape": (97, 64)}, "reaches element 6207 of a tensor"),
        ({"box": (8, 8), "strides": (64, 2)}, "its stride is 1 and not 2"),
        ({"box": (8, 8), "strides": (64,)}, "not one for each dimension"),
        ({"box": (8, 8), "shape": (9, 9), "strides": (12, 1)}, "no positive multiples of 16 bytes"),
        ({"box": (8, 8), "shape": (9, 8), "strides": (0, 1)}, "no positive multiples of 16 bytes"),
    ],
)
def test_what_no_copy_engine_takes_is_refused(
    x: torch.Tensor, given: dict[str, object], words: str
) -> None:
    with pytest.raises(LaunchRefused, match=words):
        TensorMaps()(x, **given)


def test_only_tensors_of_plain_types_have_maps(x: torch.Tensor) -> None:
    with pytest.raises(LaunchRefused, match="first argument is a tensor, not int"):
        TensorMaps()(7, box=(8, 8))
    with pytest.raises(LaunchRefused, match="no maps of complex64"):
        TensorMaps()(torch.zeros(8, 8, dtype=torch.complex64), box=(8, 8))
    with pytest.raises(LaunchRefused, match="last dimension is contiguous"):
        TensorMaps()(x.T, box=(8, 8))


def test_a_view_is_not_left(x: torch.Tensor) -> None:
    view = x[:, :32]
    assert TensorMaps()(view, box=(8, 32)).strides == (64, 1)
    with pytest.raises(LaunchRefused, match="reaches element 6143 of a tensor that ends with"):
        TensorMaps()(view, box=(8, 32), shape=(96, 64))
