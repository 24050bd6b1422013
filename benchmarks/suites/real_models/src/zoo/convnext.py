"""ConvNeXt out of transformers."""

import torch
from torch import nn
from transformers import ConvNextConfig, ConvNextModel

from .settings import draw, pick, ready


def make_model() -> nn.Module:
    """ConvNeXt-tiny, or a narrow one of a layer a stage."""
    narrow = pick(1, 0)
    config = ConvNextConfig(
        hidden_sizes=[24, 48, 64, 96] if narrow else [96, 192, 384, 768],
        depths=[1, 1, 2, 1] if narrow else [3, 3, 9, 3],
    )
    return ready(ConvNextModel(config))


def get_inputs() -> list[torch.Tensor]:
    """Images."""
    side = pick(64, 224)
    return [draw(pick(2, 64), 3, side, side)]
