"""Pooling and depthwise convolutions of the sizes of suites."""

from collections.abc import Callable

import torch
from torch.nn import functional

from strategies.calls import called
from strategies.loops import Problem


def depthwise(
    name: str, shape: tuple[int, int, int, int], kernel: tuple[int, int], padding: int = 0
) -> Problem:
    """A convolution in which no channel meets another."""
    channels = shape[1]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, w, padding=padding, groups=channels)

    return called(name, call, shape, (channels, 1, *kernel))


def summed(
    name: str, shape: tuple[int, int, int, int], size: int, step: int = 1, gap: int = 1
) -> Problem:
    """The same with a square window, as a reduction over it."""
    channels = shape[1]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        padding = (size - 1) * gap // 2
        return functional.conv2d(x, w, padding=padding, stride=step, dilation=gap, groups=channels)

    return called(name, call, shape, (channels, 1, size, size), sums_windows=True)


def channels(
    name: str,
    shape: tuple[int, int, int, int],
    size: int,
    step: int = 1,
    dtype: torch.dtype = torch.bfloat16,
) -> Problem:
    """Windows over rows of channels (batch, height, width, channels); the library's lie so too."""
    groups = shape[-1]

    def call(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        image = x.movedim(-1, 1)
        made = functional.conv2d(image, w, bias, stride=step, padding=size // 2, groups=groups)
        return torch.relu(made.movedim(1, -1))

    shapes = (shape, (groups, 1, size, size), (groups,))
    return called(name, call, *shapes, dtype=dtype, sums_windows=True, channels_last=True)


def similarity(name: str, shape: tuple[int, int, int, int], size: int) -> Problem:
    """The structural similarity of two images: five windows, and what is made of them."""
    channels = shape[1]

    def call(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        def blur(z: torch.Tensor) -> torch.Tensor:
            return functional.conv2d(z, w, padding=size // 2, groups=channels)

        a, b = blur(x), blur(y)
        aa, bb, ab = blur(x * x) - a * a, blur(y * y) - b * b, blur(x * y) - a * b
        # Weights may have any sign here, so that variances have to be kept from it.
        below = (a * a + b * b + 0.1) * (aa.abs() + bb.abs() + 0.9)
        return (2 * a * b + 0.1) * (2 * ab + 0.9) / below

    return called(
        name, call, shape, shape, (channels, 1, size, size), apart=False, sums_windows=True
    )


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

# Windows as reductions, several of them in one loop among them.
SUMS: dict[str, Callable[[], Problem]] = {
    "summed_3": lambda: summed("summed_3", (16, 64, 512, 512), 3),
    "summed_7": lambda: summed("summed_7", (16, 64, 256, 256), 7),
    "summed_31": lambda: summed("summed_31", (16, 64, 128, 128), 31),
    "summed_5_by_2": lambda: summed("summed_5_by_2", (16, 64, 256, 256), 5, step=2),
    "summed_5_dilated": lambda: summed("summed_5_dilated", (16, 64, 256, 256), 5, gap=2),
    "similarity_11": lambda: similarity("similarity_11", (16, 3, 512, 512), 11),
    "similarity_7": lambda: similarity("similarity_7", (16, 3, 512, 512), 7),
}

# Windows of ConvNeXt's four stages and of some blocks of EfficientNet's, 64 images.
CHANNELS: dict[str, Callable[[], Problem]] = {
    "channels_56": lambda: channels("channels_56", (64, 56, 56, 96), 7),
    "channels_28": lambda: channels("channels_28", (64, 28, 28, 192), 7),
    "channels_14": lambda: channels("channels_14", (64, 14, 14, 384), 7),
    "channels_7": lambda: channels("channels_7", (64, 7, 7, 768), 7),
    "channels_112_of_3": lambda: channels("channels_112_of_3", (64, 112, 112, 32), 3),
    "channels_by_2_of_3": lambda: channels("channels_by_2_of_3", (64, 112, 112, 96), 3, step=2),
    "channels_by_2_of_5": lambda: channels("channels_by_2_of_5", (64, 56, 56, 144), 5, step=2),
    "channels_14_of_5": lambda: channels("channels_14_of_5", (64, 14, 14, 672), 5),
    "channels_56_float32": lambda: channels(
        "channels_56_float32", (64, 56, 56, 96), 7, dtype=torch.float32
    ),
}
