"""A mobile network: inverted residual blocks with squeeze and excitation, after MobileNetV3."""

import torch
from torch import nn

from .settings import draw, pick, ready

# Window, channels inside, channels out, squeezes, activation, stride.
_BLOCKS = (
    (3, 16, 16, True, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 2), (3, 88, 24, False, nn.ReLU, 1),
    (5, 96, 40, True, nn.Hardswish, 2), (5, 240, 40, True, nn.Hardswish, 1),
    (5, 240, 40, True, nn.Hardswish, 1), (5, 120, 48, True, nn.Hardswish, 1),
    (5, 144, 48, True, nn.Hardswish, 1), (5, 288, 96, True, nn.Hardswish, 2),
    (5, 576, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1),
)  # fmt: skip


def _convolved(into: int, out: int, window: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(into, out, window, stride, window // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=1e-3),
    )


class _Squeeze(nn.Module):
    """Scales channels by what two small products make of their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        less = max(8, channels // 32 * 8)
        self.down, self.up = nn.Conv2d(channels, less, 1), nn.Conv2d(less, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.down(nn.functional.adaptive_avg_pool2d(x, 1))
        return x * nn.functional.hardsigmoid(self.up(nn.functional.relu(scale)))


class _Inverted(nn.Module):
    """Widens, slides a window over each channel, and narrows."""

    def __init__(
        self,
        into: int,
        window: int,
        wide: int,
        out: int,
        squeezes: bool,
        act: type[nn.Module],
        stride: int,
    ) -> None:
        super().__init__()
        layers = [_convolved(into, wide, 1), act()] if wide != into else []
        layers += [_convolved(wide, wide, window, stride, wide), act()]
        layers += [_Squeeze(wide)] if squeezes else []
        self.layers = nn.Sequential(*layers, _convolved(wide, out, 1))
        self.adds = stride == 1 and into == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.adds else y


class MobileNet(nn.Module):
    """All blocks, or the first three."""

    def __init__(self) -> None:
        super().__init__()
        layers, into = [_convolved(3, 16, 3, 2), nn.Hardswish()], 16
        for window, wide, out, squeezes, act, stride in _BLOCKS[: pick(3, 11)]:
            layers.append(_Inverted(into, window, wide, out, squeezes, act, stride))
            into = out
        self.layers = nn.Sequential(*layers, _convolved(into, 576, 1), nn.Hardswish())
        self.head = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of a thousand classes."""
        return self.head(self.layers(x).mean((2, 3)))


def make_model() -> nn.Module:
    """The network."""
    return ready(MobileNet())


def get_inputs() -> list[torch.Tensor]:
    """Images."""
    side = pick(64, 224)
    return [draw(pick(2, 64), 3, side, side)]
