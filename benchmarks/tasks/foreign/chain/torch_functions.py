import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.addcmul(x, torch.tanh(x), torch.sigmoid(x))
