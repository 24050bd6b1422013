"""What blocks that stage the lines of windows try first."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph


@pytest.mark.parametrize(
    ("module", "size", "lines"),
    [(nn.AvgPool2d(2), 126, 8), (nn.AvgPool2d(11), 1024, 1)],
    ids=["short lines share a block", "lines of large windows fill one"],
)
def test_a_block_has_enough_to_wait_for_and_not_more(
    module: nn.Module, size: int, lines: int
) -> None:
    traced = trace_graph(module, (torch.empty(1, 2, size, size),), None)
    simplify(traced)
    (loop,) = lower(to_graph(traced, ["x"])).loops
    emitter, hardware = CudaEmitter(), hardware_profile("H200")
    (staged,) = (s for s in emitter.strategies(loop, hardware) if s.name == "window_lines")
    source = emitter.emit(loop, staged, "L0_", hardware).source
    found = re.search(r"// tune: L0_ROWS in (\d+)", source)
    assert found is not None
    assert int(found[1]) == lines
