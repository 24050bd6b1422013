"""Pooling and depthwise convolutions of the sizes of suites, lowered from PyTorch's own calls.

Weights are inputs here. Truth is the same call in float64, some images at a time.
"""

from collections.abc import Callable, Iterator

import torch
from strategy_loops import Problem, Truth
from torch.nn import functional

from agents.playbook.lower import lower
from tools.tasks.convert import to_graph
from tools.tasks.export import trace_graph
from tools.tasks.simplify import simplify

Call = Callable[..., torch.Tensor]
# Elements of an input whose truth is made at once.
_PIECE = 1 << 27


class _Called(torch.nn.Module):
    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(*inputs)


def window(name: str, call: Call, *shapes: tuple[int, ...]) -> Problem:
    """A call on tensors of these shapes, the first of which is a batch of images."""
    inputs = [torch.empty(shape, device="meta") for shape in shapes]
    traced = trace_graph(_Called(call), inputs, None)
    simplify(traced)
    names = [f"x{at}" for at in range(len(shapes))]
    program = lower(to_graph(traced, names))
    (output,) = program.returns
    return Problem(
        name=name,
        program=program,
        truth=_by_images(call, names, output, shapes[0]),
        eager=lambda data: call(
            *(data[each].view(s) for each, s in zip(names, shapes, strict=True))
        ),
    )


def _by_images(call: Call, names: list[str], output: str, shape: tuple[int, ...]) -> Truth:
    images = max(1, _PIECE * shape[0] // torch.Size(shape).numel())

    def truth(data: dict[str, torch.Tensor]) -> Iterator[tuple[str, int, torch.Tensor]]:
        written, others = 0, [data[name].double() for name in names[1:]]
        for start in range(0, shape[0], images):
            made = call(data[names[0]][start : start + images].double(), *others)
            yield output, written, made
            written += made.numel()

    return truth


def depthwise(
    name: str, shape: tuple[int, int, int, int], kernel: tuple[int, int], padding: int = 0
) -> Problem:
    """A convolution in which no channel meets another."""
    channels = shape[1]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, w, padding=padding, groups=channels)

    return window(name, call, shape, (channels, 1, *kernel))


def _turned(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool1d(x.transpose(1, 2), 2)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "max_pool_1d": lambda: window("max_pool_1d", torch.nn.MaxPool1d(8, 1, 4, 3), (64, 192, 65536)),
    "max_pool_2d": lambda: window("max_pool_2d", torch.nn.MaxPool2d(4, 1, 1), (32, 64, 512, 512)),
    "max_pool_3d": lambda: window(
        "max_pool_3d", torch.nn.MaxPool3d(3, 2, 1, 3), (16, 32, 128, 128, 128)
    ),
    "average_pool_1d": lambda: window(
        "average_pool_1d", torch.nn.AvgPool1d(8, 1, 4), (64, 128, 65536)
    ),
    "average_pool_2d": lambda: window(
        "average_pool_2d", torch.nn.AvgPool2d(11), (16, 64, 2048, 2048)
    ),
    "average_pool_3d": lambda: window(
        "average_pool_3d", torch.nn.AvgPool3d(3, 2, 1), (16, 32, 128, 128, 256)
    ),
    "depthwise": lambda: depthwise("depthwise", (16, 64, 512, 512), (3, 3)),
    "depthwise_tall": lambda: depthwise("depthwise_tall", (64, 8, 512, 512), (3, 1)),
    "depthwise_wide_image": lambda: depthwise("depthwise_wide_image", (64, 128, 256, 512), (3, 3)),
    "depthwise_wide": lambda: depthwise("depthwise_wide", (32, 128, 128, 256), (3, 7)),
    # Read along channels and stored along space, as after a convolution with channels last.
    "turned": lambda: window("turned", _turned, (32, 250000, 32)),
    "depthwise_padded": lambda: depthwise("depthwise_padded", (16, 64, 512, 512), (3, 3), 1),
}
