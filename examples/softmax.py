"""Softmax over the last dimension: one row is read twice and written once by the textbook."""

import torch
from torch import nn

# Sizes that fill a GPU when there is one, and that suit a laptop otherwise.
ROWS, COLUMNS = (16384, 16384) if torch.cuda.is_available() else (2048, 2048)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
