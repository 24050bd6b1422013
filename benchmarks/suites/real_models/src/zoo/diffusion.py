"""Blocks of a diffusion transformer: norms that a condition scales, shifts and gates."""

import torch
import torch.nn.functional as F
from torch import nn

from .settings import draw, pick, ready


class Block(nn.Module):
    """Attention and two products, each within a modulated way around."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Tokens of the same shape."""
        parts = self.modulation(F.silu(condition))[:, None].chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        x = x + gate1 * self.attended(self.norm1(x) * (1 + scale1) + shift1)
        y = self.up(self.norm2(x) * (1 + scale2) + shift2)
        return x + gate2 * self.down(F.gelu(y, approximate="tanh"))

    def attended(self, x: torch.Tensor) -> torch.Tensor:
        """Every token by all others."""
        b, t, width = x.shape
        parts = self.qkv(x).view(b, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts.unbind(0))
        return self.proj(y.transpose(1, 2).reshape(b, t, width))


class Blocks(nn.Module):
    """Several, under one condition."""

    def __init__(self, count: int, width: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(count))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Tokens of the same shape."""
        for block in self.blocks:
            x = block(x, condition)
        return x


def make_model() -> nn.Module:
    """Four blocks of DiT-XL's width, or two narrow ones."""
    return ready(Blocks(pick(2, 4), pick(128, 1152), pick(4, 16)))


def get_inputs() -> list[torch.Tensor]:
    """Tokens of images, and a condition for each."""
    images, width = pick(2, 32), pick(128, 1152)
    return [draw(images, pick(64, 256), width), draw(images, width)]
