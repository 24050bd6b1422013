"""Tensors read at other places become loops, next to PyTorch on sizes that catch edges."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

Check = Callable[..., Any]
r = torch.randn
IMAGE = r(2, 3, 5, 7)
LOOPS = {
    "nearest, each twice": (nn.Upsample(scale_factor=2), IMAGE),
    "nearest to other sizes": (nn.Upsample(size=(7, 9)), IMAGE),
    "nearest to fewer": (lambda x: F.interpolate(x, scale_factor=0.6) * 2, IMAGE),
    "nearest exact": (nn.Upsample(size=(8, 3), mode="nearest-exact"), IMAGE),
    "linear": (nn.Upsample(scale_factor=3, mode="linear"), r(2, 3, 5)),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "bilinear of aligned corners": (
        nn.Upsample(size=(11, 4), mode="bilinear", align_corners=True), IMAGE),
    "bilinear of a view": (
        lambda x: F.interpolate(x.transpose(2, 3), scale_factor=1.5, mode="bilinear"), IMAGE),
    "trilinear": (nn.Upsample(size=(3, 5, 4), mode="trilinear"), r(1, 2, 2, 4, 5)),
    "mirrored padding": (lambda x: F.pad(torch.exp(x), (3, 2, 4, 0), mode="reflect"), IMAGE),
    "mirrored padding 3d": (nn.ReflectionPad3d(1), r(1, 2, 3, 4, 5)),
    "edges repeated": (nn.ReplicationPad2d((6, 1, 0, 7)), IMAGE),
    "padding all around": (lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), IMAGE),
    "rolled": (lambda x: torch.roll(x, (3, -12), (1, 3)) + x, IMAGE),
    "patches": (nn.Unfold((3, 2), dilation=(1, 2), padding=(2, 1), stride=(2, 1)), IMAGE),
    "patches summed": (lambda x: F.unfold(x, 3, padding=1).mean(1), IMAGE),
    "adaptive average of other windows": (nn.AdaptiveAvgPool2d((2, 4)), IMAGE),
    "adaptive average 1d": (nn.AdaptiveAvgPool1d(5), r(2, 3, 15)),
    "adaptive average to more": (nn.AdaptiveAvgPool2d((8, 7)), IMAGE),
    "adaptive average 3d": (nn.AdaptiveAvgPool3d((2, 1, 3)), r(1, 2, 3, 4, 5)),
    "adaptive maximum": (nn.AdaptiveMaxPool2d((5, 3)), IMAGE),
    "adaptive maximum of all": (nn.AdaptiveMaxPool2d(1), IMAGE),
    "running maximum": (lambda x: torch.cummax(x, 2).values, IMAGE),
    "running minimum": (lambda x: torch.cummin(x, 3).values.exp(), IMAGE),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_it_is_one_loop_without_the_library(name: str, check: Check) -> None:
    module, *inputs = LOOPS[name]
    checked = check(module, *inputs)
    assert len(checked.families) == 1
    assert checked.library == []


def test_where_a_running_maximum_was_is_left_to_the_library(check: Check) -> None:
    assert check(lambda x: torch.cummax(x, 1).indices, IMAGE).library == ["aten.cummax.default"]


def test_a_running_maximum_keeps_what_is_not_a_number(check: Check) -> None:
    x = r(3, 8)
    x[1, 2] = float("nan")
    assert check(lambda x: torch.cummax(x, 1).values, x).families == ["scan"]


def test_doubles_are_resampled_in_double(check: Check) -> None:
    check(nn.Upsample(size=(9, 10), mode="bilinear"), IMAGE.double())
