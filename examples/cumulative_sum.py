"""A running total along rows."""

import torch
from torch import nn

ROWS, COLUMNS = (32768, 8192) if torch.cuda.is_available() else (2048, 2048)


class Model(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=self.dim)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [1]
