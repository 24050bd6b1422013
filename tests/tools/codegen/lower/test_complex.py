"""Transforms and complex values are PyTorch's calls, with loops of ours around them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.tools.candidates.plan.vocabulary import ADMITTED
from kernelwright.tools.types.graph import base

Check = Callable[..., Any]


class Fourier(nn.Module):
    """Mixes along one axis by factors of frequencies, between two normalisations."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(6), nn.LayerNorm(6)
        self.factors = nn.Parameter(torch.randn(5, 6, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frequencies = torch.fft.rfft(torch.tanh(self.before(x)), dim=1, norm="ortho")
        mixed = torch.fft.irfft(frequencies * self.factors, n=8, dim=1, norm="ortho")
        return torch.sigmoid(self.after(x + mixed))


def rotated(x: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(4, 3, 2))
    turned = torch.polar(torch.ones(4, 3), torch.arange(12.0).view(4, 3))
    return torch.view_as_real(pairs * turned).flatten(1) * torch.sigmoid(x)


def test_a_transform_stands_between_loops(check: Check) -> None:
    checked = check(Fourier(), torch.randn(3, 8, 6))
    assert [op for op in checked.library if "fft" in op] == [
        "aten._fft_r2c.default",
        "aten._fft_c2r.default",
    ]
    assert len(checked.program.loops) == 2
    for loop in checked.program.loops:
        read = {stmt.access.buffer for stmt in loop.body if stmt.access is not None}
        assert not any(checked.program.buffer(name).dtype.is_complex for name in read)


@pytest.mark.parametrize(
    "forward",
    [
        rotated,
        lambda x: torch.fft.fft2(x).real + x,
        lambda x: (torch.fft.fft(x) * 2j).abs() * x,
        lambda x: torch.fft.fft(x).angle() + torch.exp(1j * x).imag,
        lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x.exp()).conj(), n=6),
        lambda x: torch.istft(torch.stft(x, 4, return_complex=True, window=torch.ones(4)), 4,
                              window=torch.ones(4)),
    ],
    ids=["rotary", "fft2", "number", "angle", "conjugate", "spectrogram"],
)  # fmt: skip
def test_complex_values_come_and_go(check: Check, forward: Callable[..., object]) -> None:
    checked = check(forward, torch.randn(4, 6))
    assert {base(operator) for operator in checked.library} <= ADMITTED
