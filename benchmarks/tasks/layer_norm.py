"""Layer norm over 64 x 256 x 256 values at once: 16 rows of 16 MiB for more than 100 processors."""

import torch
from torch import nn

BATCH, SHAPE = 16, (64, 256, 256)


class Model(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, *SHAPE)]


def get_init_inputs():
    return [SHAPE]
