"""A tagger of words: embedding, an LSTM both ways, and a score for every tag."""

import torch
from torch import nn

from .settings import pick, ready

WORDS = pick(500, 20000)


class Tagger(nn.Module):
    """The logarithm of every tag's probability for every word."""

    def __init__(self, width: int, tags: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.norm = nn.LayerNorm(width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of shape (sentences, words, tags)."""
        states, _ = self.lstm(self.norm(self.embed(words)))
        return self.tags(torch.relu(states)).log_softmax(dim=-1)


def make_model() -> nn.Module:
    """Of a real width, or narrow."""
    return ready(Tagger(pick(64, 512), 48))


def get_inputs() -> list[torch.Tensor]:
    """Sentences of word ids."""
    return [torch.randint(0, WORDS, (pick(4, 64), pick(24, 128)))]
