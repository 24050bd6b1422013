"""A convolution and the chain behind it: the convolution stays the library's, the tail is fused."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = (64, 64, 128) if torch.cuda.is_available() else (8, 16, 96)


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, scale: float) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.bias = nn.Parameter(torch.randn(channels_out, 1, 1) * 0.1)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x) + self.bias
        y = torch.tanh(y) * self.scale
        y = nn.functional.hardswish(y)
        return torch.clamp(y, min=-0.25) + y.abs().sqrt()


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, CHANNELS, 1.5]
