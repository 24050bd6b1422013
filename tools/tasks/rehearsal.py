"""Makes a fresh process ready to trace: torch imports half of its exporter at the first export.

That is two seconds of importing for 0.3 s of work, so a worker that stands ready exports a module
of ours beforehand. It computes nothing: an export runs on fake tensors.
"""

from __future__ import annotations

import torch
from torch import nn

from tools.tasks.export import trace_graph


class _Tiny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).sum(dim=1)


def rehearse() -> None:
    """Export something small."""
    trace_graph(_Tiny(), (torch.empty(2, 2),), None)
