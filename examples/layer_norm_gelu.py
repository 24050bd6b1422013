"""Layer norm followed by GELU, as at the entrance of many feed-forward blocks."""

import torch
from torch import nn

ROWS, WIDTH = (65536, 4096) if torch.cuda.is_available() else (4096, 1024)


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.activation = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(x))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
