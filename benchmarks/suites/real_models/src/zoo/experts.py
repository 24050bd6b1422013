"""Mixtral's decoder out of transformers: which expert computes what depends on values."""

import torch
from torch import nn
from transformers import MixtralConfig, MixtralModel

from .settings import pick, ready

WORDS = pick(512, 32000)


def make_model() -> nn.Module:
    """Four layers of eight experts, or one of four."""
    config = MixtralConfig(
        vocab_size=WORDS, hidden_size=pick(128, 1024), intermediate_size=pick(256, 3584),
        num_hidden_layers=pick(1, 4), num_attention_heads=pick(4, 16),
        num_key_value_heads=pick(2, 8), num_local_experts=pick(4, 8), use_cache=False,
        experts_implementation="eager",
    )  # fmt: skip
    return ready(MixtralModel(config))


def get_inputs() -> dict[str, torch.Tensor]:
    """Token ids."""
    return {"input_ids": torch.randint(0, WORDS, (pick(2, 8), pick(32, 512)))}
