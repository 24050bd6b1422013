"""A U-Net of a diffusion model: down, the middle and up again, with concatenated ways across."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from .blocks import Residual
from .settings import draw, pick, ready


class UNet(nn.Module):
    """As many levels as widths."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.width, embedded = widths[0], 4 * widths[0]
        self.embed = nn.Sequential(
            nn.Linear(self.width, embedded), nn.SiLU(), nn.Linear(embedded, embedded)
        )
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(Residual(a, a, embedded) for a, _ in pairs)
        self.smaller = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairs)
        self.middle = Residual(widths[-1], widths[-1], embedded)
        self.up = nn.ModuleList(Residual(a + b, a, embedded) for a, b in reversed(pairs))
        self.last = nn.Sequential(
            nn.GroupNorm(8, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 3, 3, padding=1)
        )

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """The noise of an image at a time."""
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=x.device) * (-math.log(1e4) / half))
        angles = time[:, None].float() * rates
        step = self.embed(torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype))
        y, kept = self.first(x), []
        for block, smaller in zip(self.down, self.smaller, strict=True):
            y = block(y, step)
            kept.append(y)
            y = smaller(y)
        y = self.middle(y, step)
        for block in self.up:
            y = torch.cat((F.interpolate(y, scale_factor=2.0), kept.pop()), dim=1)
            y = block(y, step)
        return self.last(y)


def make_model() -> nn.Module:
    """Four levels, or two."""
    return ready(UNet((16, 32) if pick(1, 0) else (128, 256, 384, 512)))


def get_inputs() -> list[torch.Tensor]:
    """Images and how far each is on its way."""
    images, side = pick(2, 16), pick(16, 64)
    return [draw(images, 3, side, side), torch.randint(0, 1000, (images,))]
