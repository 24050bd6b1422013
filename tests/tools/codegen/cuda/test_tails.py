"""Tails in one pass under every strategy, on the emulated device.

Windows that reduce the rows they cover, and results read along one axis and stored along another.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Emitted, Program
from kernelwright.tools.codegen.ir.rewrites import rewrite
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph

pytestmark = pytest.mark.exhaustive  # every variant is built before any is chosen

Kept = Callable[..., list[Any]]

Function = Callable[[torch.Tensor], torch.Tensor]
r, LAST = torch.randn, torch.channels_last
TASKS: dict[str, tuple[Function, torch.Tensor]] = {
    "layer norm, average pool": (
        lambda x: F.avg_pool3d(F.layer_norm(x, (12,)), 2).tanh(), r(2, 2, 4, 6, 12)),
    "softmax over channels, pooled": (lambda x: F.max_pool2d(x.softmax(1), 2), r(2, 5, 6, 70)),
    "softmax over channels last, pooled": (
        lambda x: F.max_pool2d(x.softmax(1), 2),
        r(2, 16, 6, 10).to(memory_format=LAST)),
    "channels last, stored first": (
        lambda x: x.tanh() * 2 + x.new_tensor(0.5), r(2, 40, 9, 13).to(memory_format=LAST)),
    "channels last in bfloat16, pooled": (
        lambda x: F.avg_pool2d(x.relu(), 2, 2, 1),
        r(2, 33, 8, 70).bfloat16().to(memory_format=LAST)),
    "two matrices turned, a vector added": (
        lambda x: (x[0].t().exp() + x[1].t()) * x[0, :, 0], r(2, 67, 35)),
}  # fmt: skip


class _Function(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@dataclass
class Spread:
    """One task under one strategy."""

    label: str
    program: Program
    emitted: Emitted
    settings: dict[str, int]
    x: torch.Tensor
    wanted: torch.Tensor
    library: list[Path] = field(default_factory=list)


TURNED = {
    "three channels put last": r(2, 3, 9, 13),
    "channels of volumes put last": r(2, 33, 3, 5, 7),
}


def _tail(function: Function, x: torch.Tensor) -> Program:
    traced = trace_graph(_Function(function), [x], None)
    simplify(traced)
    return lower(to_graph(traced, ["x0"]), lowering=Lowering(one_pass=True))


def _put_last(x: torch.Tensor) -> Program:
    """Only what turns the input of a convolution."""
    convolution = (nn.Conv2d, nn.Conv3d)[x.dim() - 4](x.shape[1], 4, 3)
    traced = trace_graph(nn.Sequential(convolution, nn.Tanh()), [x], None)
    simplify(traced)
    program = lower(to_graph(traced, ["x0"]), lowering=Lowering(channels_last=True))
    loop = program.loops[0]
    made = loop.stores[0].access.buffer
    return program.model_copy(update={"steps": (loop,), "returns": (made,), "views": ()})


def _spread(name: str, hardware: Hardware, start: int) -> list[Spread]:
    if name in TURNED:
        x = TURNED[name]
        program, wanted = _put_last(x), x.double().movedim(1, -1)
    else:
        function, x = TASKS[name]
        program, wanted = _tail(function, x), function(x.double())
    (loop,) = program.loops
    emitter, made = CudaEmitter(), []
    for strategy in emitter.strategies(loop, hardware):
        changed = rewrite(loop, strategy.rewrite) if strategy.rewrite else loop
        emitted = emitter.emit(changed, strategy, f"k{start + len(made)}", hardware)
        listed = valid_settings(parse_kernel(emitter.header() + emitted.source, "cuda"))
        settings = {one.name: one.value for one in listed[0]}
        made.append(Spread(f"{name}, {strategy.name}", program, emitted, settings, x, wanted))
    return made


@pytest.fixture(scope="module")
def spread(toolbox: SimpleNamespace, small_device: Hardware, swept: Kept) -> list[Spread]:
    made: list[Spread] = []
    for name in (*TASKS, *TURNED):
        made += _spread(name, small_device, len(made))
    turned = [one for one in made if one.label.endswith("pointwise_transposed")]
    assert len(turned) == 5
    assert len({one.label for one in made}) > 2 * len(TASKS)
    made = swept(made, lambda one: one.label.rsplit(", ", 1)[1])
    toolbox.compile_emulated(made, shard=12)
    return made


def test_tails_are_right_under_every_strategy(
    toolbox: SimpleNamespace, spread: list[Spread]
) -> None:
    wrong, rounding = [], {torch.float32: 3e-6, torch.bfloat16: 1e-2}
    for one in spread:
        (output,) = one.program.returns
        shape = one.program.buffer(output).shape
        empty = torch.full(shape, float("nan"), dtype=one.x.dtype)
        buffers = {one.program.parameters[0]: one.x, output: empty}
        library = ctypes.CDLL(str(one.library[0]))
        exec("\n".join(one.emitted.plan), toolbox.Emulated(library, buffers, one.settings).names())
        got = buffers[output].double()
        views = dict(one.program.views)
        if output in views:
            got = eval(views[output], {output: got})
        try:
            got, off = got.reshape(one.wanted.shape), rounding[one.x.dtype]
            torch.testing.assert_close(got, one.wanted, rtol=off, atol=off)
        except AssertionError as error:
            wrong.append(f"{one.label} {one.settings}: {error}")
    assert not wrong, "\n".join(wrong)
