import torch
from torch import nn


class ModelNew(nn.Module):
    """Keeps to the caches: some rows at a time, all into one answer."""

    def forward(self, x):
        y = torch.empty_like(x)
        for part, answer in zip(x.split(64), y.split(64), strict=True):
            torch.sigmoid(part, out=answer)
            answer.mul_(torch.tanh(part)).add_(part)
        return y
