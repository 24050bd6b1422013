import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, columns))

    def forward(self, x, gate):
        norm = self.norm
        y = F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        return y.mul_(torch.sigmoid(gate)).mul_(self.scale)
