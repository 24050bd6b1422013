"""Windows as strips, on the emulated device, next to PyTorch in float64."""

import copy
import ctypes
import random
from collections.abc import Callable
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
from kernelwright.tools.codegen.ir import Program
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph

pytestmark = pytest.mark.exhaustive  # every variant is built before any is chosen

Kept = Callable[..., list[Any]]

Module = Callable[..., torch.Tensor]
r = torch.randn


def shifted(x: torch.Tensor) -> torch.Tensor:
    """A stencil that nobody called a window: neighbours' differences, with a cross of taps."""
    middle = x[:, 1:-1, 1:-1]
    return (x[:, 1:-1, 2:] + x[:, 1:-1, :-2] + x[:, 2:, 1:-1] + x[:, :-2, 1:-1]) - 4 * middle


def tail(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.relu(x + 0.25), 2).tanh()


def beside(x: torch.Tensor) -> torch.Tensor:
    """A window, and a read that falls: beyond a row's end it would leave the buffer."""
    return F.max_pool2d(x, 3, 1, 1) + x.flip(0, 1, 2, 3)


CASES: dict[str, tuple[Module, torch.Tensor]] = {
    "max 1d dilated": (nn.MaxPool1d(8, 1, 4, 3), r(3, 2, 96)),
    "max 1d with a step": (nn.MaxPool1d(3, 2, 1), r(2, 3, 67)),
    "max 2d": (nn.MaxPool2d(4, 1, 1), r(2, 3, 21, 40)),
    "max 2d over the edge": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), r(2, 3, 18, 35)),
    "max 2d of halves": (nn.MaxPool2d(3, 1, 1), r(2, 3, 13, 32).half()),
    "max 2d of a view": (
        lambda x: F.max_pool2d(x.transpose(2, 3), (3, 2), (1, 2)), r(2, 3, 17, 19)),
    "max 2d of channels last": (
        nn.MaxPool2d(3, 2, 1), r(2, 8, 11, 13).to(memory_format=torch.channels_last)),
    "max 3d dilated": (nn.MaxPool3d(3, 2, 1, 3), r(1, 2, 19, 18, 20)),
    "max 3d of channels last": (
        nn.MaxPool3d(3, 1, 1), r(1, 8, 5, 4, 6).to(memory_format=torch.channels_last_3d)),
    "max 2d that leaves nothing": (nn.MaxPool2d(2), r(2, 3, 12, 36)),
    "a falling read beside a window": (beside, r(2, 3, 11, 19)),
    "average 1d": (nn.AvgPool1d(8, 1, 4), r(2, 3, 64)),
    "average 2d by the rest": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), r(2, 3, 19, 30)),
    "average 2d over the edge": (
        nn.AvgPool2d((3, 2), 2, (1, 0), ceil_mode=True, count_include_pad=False), r(2, 3, 8, 41)),
    "average 3d": (nn.AvgPool3d(3, 2, 1), r(1, 2, 12, 10, 24)),
    "average 3d of bfloat16": (nn.AvgPool3d(3, 1, 1), r(1, 2, 5, 6, 32).bfloat16()),
    "average of windows alone": (nn.AvgPool2d(11), r(1, 2, 33, 55)),
    "average of windows far apart": (nn.AvgPool2d((3, 5), (4, 7)), r(2, 3, 15, 83)),
    "average 1d of halves, windows alone": (nn.AvgPool1d(12), r(2, 3, 12 * 37 + 5).half()),
    "average 3d of doubles by fours": (
        nn.AvgPool3d(3, 4, 1, ceil_mode=True), r(1, 2, 9, 11, 39).double()),
    "max 2d by eights over the edge": (
        nn.MaxPool2d(9, 8, 3, ceil_mode=True), r(2, 2, 19, 8 * 35 + 3).bfloat16()),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), r(2, 4, 16, 36)),
    "depthwise padded": (nn.Conv2d(4, 4, (3, 5), 2, (1, 2), groups=4, bias=False), r(2, 4, 9, 23)),
    "depthwise 3d": (nn.Conv3d(2, 2, 3, padding=1, groups=2), r(1, 2, 5, 6, 17)),
    "depthwise of doubles": (nn.Conv1d(3, 3, 5, padding=2, groups=3), r(2, 3, 40).double()),
    "a fused tail": (tail, r(2, 3, 20, 36)),
    "a stencil": (shifted, r(3, 17, 30)),
}  # fmt: skip


class _Function(nn.Module):
    def __init__(self, function: Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def lowered(module: Module, x: torch.Tensor) -> Program:
    traced = trace_graph(module, [x], None)
    simplify(traced)
    return lower(to_graph(traced, ["x0"]))


class Windowed:
    """One case under one setting: its kernel, and what it must give."""

    def __init__(
        self, name: str, strategy: str, number: int, setting: int, hardware: Hardware
    ) -> None:
        function, self.x = CASES[name]
        self.module = function if isinstance(function, nn.Module) else _Function(function)
        self.module = self.module.to(self.x.dtype)
        self.strategy = strategy
        self.name, self.program = name, lowered(self.module, self.x)
        (self.loop,) = self.program.loops
        emitter, prefix = CudaEmitter(), f"{strategy[7]}{number}x{setting}"
        (chosen,) = [s for s in emitter.strategies(self.loop, hardware) if s.name == strategy]
        self.emitted = emitter.emit(self.loop, chosen, prefix, hardware)
        text = emitter.header() + self.emitted.source
        listed = [
            {one.name: one.value for one in values}
            for values in valid_settings(parse_kernel(text, "cuda"))
        ]
        small = [v for v in listed if v[f"{prefix.upper()}_THREADS"] == 128]
        self.settings = [small[0], *random.Random(name).sample(small[1:], 1)][setting]
        self.library: list[Path] = []

    def run(self, emulated: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """(what the kernel wrote, what PyTorch says in float64)."""
        program, (output,) = self.program, self.program.returns
        weights = dict(self.module.named_parameters())
        buffers = {program.parameters[0]: self.x}
        buffers |= {name: weights[at].detach() for name, at in program.weights}
        spec = program.buffer(output)
        buffers[output] = torch.full(
            spec.shape, float("nan"), dtype=getattr(torch, spec.dtype.value)
        )
        names = emulated(ctypes.CDLL(str(self.library[0])), buffers, self.settings).names()
        exec("\n".join(self.emitted.plan), names)
        with torch.no_grad():
            wanted = copy.deepcopy(self.module).double()(self.x.double())
        return buffers[output].double().reshape(wanted.shape), wanted


STRATEGIES = ("window_strips", "window_lines")
# What one of the two is not for, or where the other's case says enough about both.
LEFT_OUT = dict.fromkeys(
    (
        "max 2d of a view",  # its outputs lie across the lines of its windows
        "max 1d with a step",
        "max 2d",
        "max 2d over the edge",
        "max 3d of channels last",
        "max 2d that leaves nothing",
        "average 2d by the rest",
        "average 3d",
        "depthwise",
        "depthwise 3d",
    ),
    "window_lines",
)
LEFT_OUT |= dict.fromkeys(
    ("average 1d of halves, windows alone", "average 3d of doubles by fours"), "window_strips"
)


@pytest.fixture(scope="module")
def windowed(toolbox: SimpleNamespace, small_device: Hardware, swept: Kept) -> list[Windowed]:
    made = [
        Windowed(name, strategy, number, setting, small_device)
        for number, name in enumerate(CASES)
        for strategy in STRATEGIES
        if LEFT_OUT.get(name) != strategy
        for setting in ((0,) if number % 6 else (0, 1))
    ]
    made = swept(made, lambda one: (one.strategy, one.name.split()[0]))
    toolbox.compile_emulated(made)
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_windows_are_what_pytorch_says(
    strategy: str, toolbox: SimpleNamespace, windowed: list[Windowed]
) -> None:
    wrong = []
    for one in windowed:
        if one.strategy != strategy:
            continue
        got, wanted = one.run(toolbox.Emulated)
        rounding = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(one.x.dtype, 3e-6)
        try:
            torch.testing.assert_close(got, wanted, rtol=rounding, atol=rounding, equal_nan=True)
        except AssertionError as error:
            wrong.append(f"{one.name} {one.settings}: {error}")
    assert not wrong, "\n".join(wrong)
