"""Cross-entropy over a vocabulary, with some positions to be ignored."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS, VOCABULARY = (16384, 32000) if torch.cuda.is_available() else (512, 16000)


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, targets, ignore_index=0)


def get_inputs():
    return [torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return []
