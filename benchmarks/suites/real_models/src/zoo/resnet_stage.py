"""A stage of a ResNet as torchvision lays it out, in training and in evaluation mode."""

import torch
from torch import nn

from .settings import DTYPE, draw, pick, ready


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1, each with a norm, and the way around them."""

    def __init__(self, channels: int, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            around = nn.Conv2d(channels, out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(around, nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both ways, added."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def stage() -> nn.Module:
    """ResNet-50's third stage, or two narrow blocks."""
    channels, width = pick(32, 512), pick(16, 256)
    out = 4 * width
    rest = [Bottleneck(out, width, out, 1) for _ in range(pick(1, 5))]
    return nn.Sequential(Bottleneck(channels, width, out, 2), *rest)


def evaluated() -> nn.Module:
    """With the statistics that it keeps."""
    return ready(stage())


def trained() -> nn.Module:
    """With the batch's own statistics, which also move those that it keeps."""
    return stage().to(DTYPE).train()


def get_inputs() -> list[torch.Tensor]:
    """What the stage before would give."""
    side = pick(16, 28)
    return [draw(pick(4, 64), pick(32, 512), side, side)]
