import torch
from torch import nn


class Rope(nn.Module):
    def __init__(self, width: int = 64, length: int = 2048):
        super().__init__()
        angles = torch.outer(
            torch.arange(length).float(),
            10000.0 ** (-torch.arange(0, width, 2).float() / width),
        )
        self.register_buffer("cos", torch.cat([angles.cos(), angles.cos()], dim=-1))
        self.register_buffer("sin", torch.cat([angles.sin(), angles.sin()], dim=-1))

    def forward(self, x):
        left, right = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-right, left], dim=-1) * self.sin


def get_inputs():
    return [torch.randn(4, 16, 2048, 64)]


def get_init_inputs():
    return [64, 2048]
