"""EfficientNet out of transformers."""

import torch
from torch import nn
from transformers import EfficientNetConfig, EfficientNetModel

from .settings import draw, pick, ready


def make_model() -> nn.Module:
    """EfficientNet-b0, or half as wide and with fewer layers."""
    config = EfficientNetConfig(
        width_coefficient=pick(1, 2) / 2, depth_coefficient=pick(1, 2) / 2,
        image_size=pick(64, 224), hidden_dim=pick(640, 1280),
    )  # fmt: skip
    return ready(EfficientNetModel(config))


def get_inputs() -> list[torch.Tensor]:
    """Images."""
    side = pick(64, 224)
    return [draw(pick(2, 64), 3, side, side)]
