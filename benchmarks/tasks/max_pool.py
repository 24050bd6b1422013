"""Overlapping 4 x 4 maxima with stride 1: every input takes part in 16 outputs."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 32, 64, 256


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size=4, stride=1, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
