"""A real forward on real inputs while tracing, where it is cheap.

It finds what fake tensors cannot: indices out of range, checks of values, and which inputs the
forward insists on having in some domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelwright.tools.tasks.build import build_module
from kernelwright.tools.tasks.checks import check_outputs
from kernelwright.tools.tasks.load import Entry
from kernelwright.tools.tasks.probe import Probe
from kernelwright.tools.tasks.refusals import user_code
from kernelwright.tools.types import Graph

# All results of a forward together, and its operations: a fraction of a second on one core.
LARGEST_BYTES = 2**28
MOST_FLOPS = 2**32


@dataclass(frozen=True)
class Trial:
    """A module of the task's own and inputs that it is known to run on."""

    module: nn.Module
    samples: list[object]
    path: str

    def run(self, values: Sequence[object]) -> list[torch.Tensor]:
        """The flat outputs on these arguments; RefusedError when the forward raises."""
        with user_code("The forward", self.path), torch.no_grad():
            outputs = self.module(*values)
            check_outputs(outputs)
        return pytree.tree_leaves(outputs)


def try_out(file: ModuleType, entry: Entry, found: Probe, graph: Graph, flops: int) -> Trial | None:
    """Run the forward once for real; None when that would be dear.

    Raises:
        RefusedError: the forward raises on the task's own inputs.
    """
    size = sum(spec.size_bytes for node in graph.nodes for spec in node.out)
    if found.samples is None or not found.samples_fit or size > LARGEST_BYTES or flops > MOST_FLOPS:
        return None
    trial = Trial(build_module(file, entry, 0), found.samples, str(file.__file__))
    trial.run(found.samples)
    return trial
