import torch
from torch import nn


class GatedScan(nn.Module):
    def forward(self, x, gate):
        return torch.cumsum(torch.sigmoid(gate) * x, dim=1)


def get_inputs():
    return [torch.randn(64, 2048, 256), torch.randn(64, 2048, 256)]


def get_init_inputs():
    return []
