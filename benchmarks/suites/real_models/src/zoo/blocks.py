"""What the U-Net is made of."""

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions behind norms, moved by the step's embedding."""

    def __init__(self, channels: int, out: int, embedded: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.step = nn.Linear(embedded, out)
        self.norm2, self.conv2 = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
        self.around = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The convolutions' result, added to what came in."""
        y = self.conv1(self.act(self.norm1(x))) + self.step(self.act(step))[:, :, None, None]
        return self.conv2(self.act(self.norm2(y))) + self.around(x)
