"""A residual stream and its RMS norm: two inputs, two outputs, as in a Llama-style block."""

import torch
from torch import nn

ROWS, WIDTH = (65536, 4096) if torch.cuda.is_available() else (2048, 1536)


class Model(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        stream = x + residual
        scale = torch.rsqrt(stream.pow(2).mean(dim=-1, keepdim=True) + self.epsilon)
        return stream * scale * self.weight, stream


def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 1e-6]
