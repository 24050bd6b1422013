"""Makes a fresh process ready to trace: torch imports half of its exporter at the first export.

That is a second and a half of importing for 0.3 s of work, so a worker that stands ready exports a
module of ours beforehand. It computes nothing: an export runs on fake tensors.
"""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module

import torch
from torch import nn

from kernelwright.tools.collector import imports_out_of_sight
from kernelwright.tools.tasks.export import trace_graph

# What torch imports when it exports for the first time; a release may lack one of them.
_MODULES = ("_dynamo", "_export", "export._trace", "_inductor.decomposition")


class _Tiny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).sum(dim=1)


def import_exporter() -> None:
    """Import what the first export would, without the collector's company."""
    if "torch._dynamo" in sys.modules:
        return
    with imports_out_of_sight():
        for name in _MODULES:
            with contextlib.suppress(ImportError):
                import_module(f"torch.{name}")


def rehearse() -> None:
    """Export something small."""
    import_exporter()
    trace_graph(_Tiny(), (torch.empty(2, 2),), None)
