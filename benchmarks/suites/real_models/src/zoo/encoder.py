"""BERT's encoder out of transformers, with a mask; it returns a dataclass."""

import torch
from torch import nn
from transformers import BertConfig, BertModel

from .settings import pick, ready

WORDS = pick(512, 30522)


def make_model() -> nn.Module:
    """BERT-base, or two narrow layers of it."""
    config = BertConfig(
        vocab_size=WORDS, hidden_size=pick(128, 768), num_hidden_layers=pick(2, 12),
        num_attention_heads=pick(4, 12), intermediate_size=pick(512, 3072),
    )  # fmt: skip
    return ready(BertModel(config, add_pooling_layer=False))


def get_inputs() -> dict[str, torch.Tensor]:
    """Token ids, of which the last quarter is padding."""
    shape = (pick(2, 16), pick(64, 512))
    mask = torch.ones(shape, dtype=torch.int64)
    mask[:, shape[1] * 3 // 4 :] = 0
    return {"input_ids": torch.randint(0, WORDS, shape), "attention_mask": mask}
