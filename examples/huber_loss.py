"""Huber loss, averaged: two large inputs, one number out."""

import torch
from torch import nn
from torch.nn import functional as F

ROWS, COLUMNS = (32768, 8192) if torch.cuda.is_available() else (2048, 2048)


class Model(nn.Module):
    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.huber_loss(prediction, target, delta=0.7)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
