import torch
from torch import nn


class ModelNew(nn.Module):
    """Computes the statistics itself, into memory that it keeps from call to call."""

    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, columns))
        self._room = {}

    def forward(self, x, gate):
        key = (x.shape, x.dtype, x.device)
        if key not in self._room:
            self._room[key] = torch.empty_like(x)
        gated = torch.sigmoid(gate, out=self._room[key])
        variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        normed = (x - mean) * torch.rsqrt(variance + self.norm.eps)
        return torch.addcmul(self.norm.bias, normed, self.norm.weight) * gated * self.scale
