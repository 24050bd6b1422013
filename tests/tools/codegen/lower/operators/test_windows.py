"""Pooling and depthwise convolutions as loops, next to PyTorch on shapes that catch edges."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.tools.codegen.ir import Program

Check = Callable[..., Any]
r = torch.randn
POOLS = {
    "max 1d": (nn.MaxPool1d(3, 2, 1), r(2, 3, 11)),
    "max 1d dilated": (nn.MaxPool1d(4, 2, 2, dilation=3), r(2, 3, 29)),
    "max 2d": (nn.MaxPool2d(2), r(2, 3, 8, 6)),
    "max 2d that leaves a rest": (nn.MaxPool2d(3), r(2, 3, 11, 10)),
    "max 2d overlapping": (nn.MaxPool2d(4, 1, 1), r(2, 3, 9, 10)),
    "max 2d over the edge": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), r(2, 3, 8, 10)),
    "max 2d unbatched": (nn.MaxPool2d(3, 2), r(3, 8, 9)),
    "max 2d of a view": (lambda x: F.max_pool2d(x.transpose(2, 3), (3, 2), (1, 2)), r(2, 3, 7, 9)),
    "max 2d of a channels-last tensor": (
        nn.MaxPool2d(3, 2, 1), r(2, 4, 7, 9).to(memory_format=torch.channels_last)),
    "max 3d": (nn.MaxPool3d(3, 2, 1, dilation=2), r(2, 2, 9, 10, 11)),
    "max 2d of integers": (
        lambda x: F.max_pool2d(x.float(), 2), torch.randint(-9, 9, (2, 2, 6, 6))),
    "average 1d": (nn.AvgPool1d(8, 1, 4), r(2, 3, 20)),
    "average 2d": (nn.AvgPool2d(2), r(2, 3, 8, 6)),
    "average 2d by the rest": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), r(2, 3, 9, 10)),
    "average 2d over the edge": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), r(2, 3, 8, 10)),
    "average 2d over the edge by the rest": (
        nn.AvgPool2d((3, 2), 2, (1, 0), ceil_mode=True, count_include_pad=False), r(2, 3, 8, 11)),
    "average 2d by a number": (nn.AvgPool2d(3, 2, 1, divisor_override=5), r(2, 3, 9, 10)),
    "average 3d": (nn.AvgPool3d(3, 2, 1), r(2, 2, 7, 8, 9)),
    "average of a large window": (nn.AvgPool2d(12), r(2, 3, 25, 38)),
    "maximum of a large window": (nn.MaxPool2d((16, 9)), r(2, 3, 34, 27)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), r(2, 4, 7, 9)),
    "depthwise padded": (nn.Conv2d(4, 4, (3, 5), 2, (1, 2), groups=4, bias=False), r(2, 4, 9, 11)),
    "depthwise dilated": (nn.Conv1d(4, 4, 3, padding=2, dilation=2, groups=4), r(2, 4, 13)),
    "depthwise 3d": (nn.Conv3d(2, 2, 3, padding=1, groups=2), r(2, 2, 5, 6, 7)),
    "one channel": (nn.Conv2d(1, 1, 3, padding=1), r(2, 1, 8, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
def test_a_window_is_one_loop_without_the_library(name: str, check: Check) -> None:
    module, *inputs = POOLS[name]
    program: Program = check(module, *inputs).program
    assert len(program.loops) == len(program.steps) == 1


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Sigmoid()),
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Hardswish(), nn.MaxPool2d(2)),
        nn.Sequential(nn.AvgPool2d(2), nn.GELU(), nn.MaxPool2d(2)),
    ],
)
def test_what_stands_around_a_window_is_fused_with_it(module: nn.Module, check: Check) -> None:
    program: Program = check(module, r(2, 4, 8, 12)).program
    assert len(program.loops) == len(program.steps) == 1


def test_a_global_pool_behind_a_window_reads_the_input_once(check: Check) -> None:
    program: Program = check(lambda x: F.max_pool2d(x, 2).mean((2, 3)), r(2, 4, 8, 12)).program
    assert len(program.loops) == len(program.steps) == 1


def test_nan_wins_a_maximum(check: Check) -> None:
    x = r(2, 3, 8, 8)
    x[0, 0, 3, 3] = float("nan")
    x[1, 2] = -float("inf")
    check(nn.MaxPool2d(3, 2, 1), x)


@pytest.mark.parametrize(
    ("module", "operator"),
    [
        (lambda x: F.max_pool2d(x, 2, return_indices=True), "max_pool2d_with_indices"),
        (nn.MaxPool2d(16, 1), "max_pool2d_with_indices"),
        (nn.Conv2d(4, 8, 3, groups=4), "convolution"),
        (nn.Conv2d(4, 4, 3, groups=2), "convolution"),
        (nn.ConvTranspose2d(4, 4, 3, groups=4), "convolution"),
    ],
)
def test_what_is_no_window_of_ours_stays_with_the_library(
    module: Callable[..., object], operator: str, check: Check
) -> None:
    program: Program = check(module, r(2, 4, 20, 20)).program
    assert any(operator in getattr(step, "operator", "") for step in program.steps)
