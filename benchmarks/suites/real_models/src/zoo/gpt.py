"""A stack of GPT-2 blocks out of transformers, without a cache; it returns a dataclass."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

from .settings import pick, ready

WORDS = pick(512, 50257)


def make_model() -> nn.Module:
    """Twelve blocks at their real width, two narrow ones for a CPU."""
    config = GPT2Config(
        vocab_size=WORDS, n_positions=1024, n_embd=pick(128, 768), n_layer=pick(2, 12),
        n_head=pick(4, 12), use_cache=False,
    )  # fmt: skip
    return ready(GPT2Model(config))


def get_inputs() -> dict[str, torch.Tensor]:
    """Token ids, by the name that the forward gives them."""
    return {"input_ids": torch.randint(0, WORDS, (pick(2, 8), pick(64, 1024)))}
