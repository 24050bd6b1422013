"""A gated row norm with weights: small enough that many calls make a round of the clock."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, columns))

    def forward(self, x, gate):
        return self.norm(x) * torch.sigmoid(gate) * self.scale


def get_inputs():
    return [torch.randn(257, 1000), torch.randn(257, 1000)]


def get_init_inputs():
    return [1000]
