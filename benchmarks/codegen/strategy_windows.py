"""Pooling and depthwise convolutions of the sizes of suites."""

from collections.abc import Callable

import torch
from strategy_calls import called
from strategy_loops import Problem
from torch.nn import functional


def depthwise(
    name: str, shape: tuple[int, int, int, int], kernel: tuple[int, int], padding: int = 0
) -> Problem:
    """A convolution in which no channel meets another."""
    channels = shape[1]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, w, padding=padding, groups=channels)

    return called(name, call, shape, (channels, 1, *kernel))


def _turned(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool1d(x.transpose(1, 2), 2)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "max_pool_1d": lambda: called("max_pool_1d", torch.nn.MaxPool1d(8, 1, 4, 3), (64, 192, 65536)),
    "max_pool_2d": lambda: called("max_pool_2d", torch.nn.MaxPool2d(4, 1, 1), (32, 64, 512, 512)),
    "max_pool_3d": lambda: called(
        "max_pool_3d", torch.nn.MaxPool3d(3, 2, 1, 3), (16, 32, 128, 128, 128)
    ),
    "average_pool_1d": lambda: called(
        "average_pool_1d", torch.nn.AvgPool1d(8, 1, 4), (64, 128, 65536)
    ),
    "average_pool_2d": lambda: called(
        "average_pool_2d", torch.nn.AvgPool2d(11), (16, 64, 2048, 2048)
    ),
    "average_pool_3d": lambda: called(
        "average_pool_3d", torch.nn.AvgPool3d(3, 2, 1), (16, 32, 128, 128, 256)
    ),
    "depthwise": lambda: depthwise("depthwise", (16, 64, 512, 512), (3, 3)),
    "depthwise_tall": lambda: depthwise("depthwise_tall", (64, 8, 512, 512), (3, 1)),
    "depthwise_wide_image": lambda: depthwise("depthwise_wide_image", (64, 128, 256, 512), (3, 3)),
    "depthwise_wide": lambda: depthwise("depthwise_wide", (32, 128, 128, 256), (3, 7)),
    # Read along channels and stored along space, as after a convolution with channels last.
    "turned": lambda: called("turned", _turned, (32, 250000, 32)),
    "depthwise_padded": lambda: depthwise("depthwise_padded", (16, 64, 512, 512), (3, 3), 1),
}
