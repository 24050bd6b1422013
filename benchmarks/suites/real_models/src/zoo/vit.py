"""A vision transformer out of transformers."""

import torch
from torch import nn
from transformers import ViTConfig, ViTModel

from .settings import draw, pick, ready


def make_model() -> nn.Module:
    """ViT-base, or two narrow layers of it."""
    config = ViTConfig(
        hidden_size=pick(128, 768), num_hidden_layers=pick(2, 12), num_attention_heads=pick(4, 12),
        intermediate_size=pick(512, 3072), image_size=pick(64, 224), patch_size=16,
    )  # fmt: skip
    return ready(ViTModel(config, add_pooling_layer=False))


def get_inputs() -> list[torch.Tensor]:
    """Images."""
    side = pick(64, 224)
    return [draw(pick(2, 64), 3, side, side)]
