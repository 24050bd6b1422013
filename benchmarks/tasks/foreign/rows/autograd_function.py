import torch
from torch import nn


class GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate, weight, bias, scale, eps):
        y = torch.native_layer_norm(x, [x.shape[-1]], weight, bias, eps)[0]
        return y * torch.sigmoid(gate) * scale

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, columns))

    def forward(self, x, gate):
        norm = self.norm
        return GatedNorm.apply(x, gate, norm.weight, norm.bias, self.scale, norm.eps)
