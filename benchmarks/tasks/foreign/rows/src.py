import torch
from torch import nn


class Model(nn.Module):
    """The half of a pair that is meant to be faster, under the reference's name."""

    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, columns))

    def forward(self, x, gate):
        opened = torch.sigmoid(gate)
        opened *= self.scale
        return self.norm(x).mul_(opened)
