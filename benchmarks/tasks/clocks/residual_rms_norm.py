import torch
from torch import nn


class ResidualRmsNorm(nn.Module):
    def __init__(self, width: int = 4096):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width).bfloat16() + 0.5)

    def forward(self, x, residual):
        y = (x + residual).float()
        scale = torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * scale).bfloat16() * self.weight


def get_inputs():
    return [torch.randn(4096, 4096).bfloat16(), torch.randn(4096, 4096).bfloat16()]


def get_init_inputs():
    return [4096]
