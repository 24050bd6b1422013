"""Windows that reduce the rows they cover, under every strategy, on the emulated device."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agents.playbook.cuda import CudaEmitter
from agents.playbook.ir import Emitted, Program
from agents.playbook.lower import lower
from agents.playbook.rewrites import rewrite
from profiles.load import Hardware
from tools.candidates import parse_kernel, valid_settings
from tools.nouns import Language
from tools.tasks.convert import to_graph
from tools.tasks.export import trace_graph
from tools.tasks.simplify import simplify

Function = Callable[[torch.Tensor], torch.Tensor]
r = torch.randn
TASKS: dict[str, tuple[Function, torch.Tensor]] = {
    "layer norm, average pool": (
        lambda x: F.avg_pool3d(F.layer_norm(x, (12,)), 2).tanh(), r(2, 2, 4, 6, 12)),
    "softmax over channels, pooled": (lambda x: F.max_pool2d(x.softmax(1), 2), r(2, 5, 6, 70)),
    "softmax over channels last, pooled": (
        lambda x: F.max_pool2d(x.softmax(1), 2),
        r(2, 16, 6, 10).to(memory_format=torch.channels_last)),
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


def _spread(name: str, hardware: Hardware, start: int) -> list[Spread]:
    function, x = TASKS[name]
    traced = trace_graph(_Function(function), [x], None)
    simplify(traced)
    program = lower(to_graph(traced, ["x0"]), one_pass=True)
    (loop,) = program.loops
    emitter, made = CudaEmitter(), []
    for strategy in emitter.strategies(loop, hardware):
        changed = rewrite(loop, strategy.rewrite) if strategy.rewrite else loop
        emitted = emitter.emit(changed, strategy, f"k{start + len(made)}", hardware)
        listed = valid_settings(parse_kernel(emitter.header() + emitted.source, Language.CUDA))
        settings = {one.name: one.value for one in listed[0]}
        wanted = function(x.double())
        made.append(Spread(f"{name}, {strategy.name}", program, emitted, settings, x, wanted))
    return made


@pytest.fixture(scope="module")
def spread(
    toolbox: SimpleNamespace, small_device: Hardware, tmp_path_factory: pytest.TempPathFactory
) -> list[Spread]:
    made: list[Spread] = []
    for name in TASKS:
        made += _spread(name, small_device, len(made))
    toolbox.compile_emulated(made, Path(tmp_path_factory.mktemp("absorbed")), shard=12)
    return made


def test_rows_under_windows_are_right_under_every_strategy(
    toolbox: SimpleNamespace, spread: list[Spread]
) -> None:
    wrong = []
    for one in spread:
        (output,) = one.program.returns
        shape = one.program.buffer(output).shape
        buffers = {one.program.parameters[0]: one.x, output: torch.full(shape, float("nan"))}
        library = ctypes.CDLL(str(one.library[0]))
        exec("\n".join(one.emitted.plan), toolbox.Emulated(library, buffers, one.settings).names())
        got = buffers[output].double()
        views = dict(one.program.views)
        if output in views:
            got = eval(views[output], {output: got})
        try:
            torch.testing.assert_close(
                got.reshape(one.wanted.shape), one.wanted, rtol=3e-6, atol=3e-6
            )
        except AssertionError as error:
            wrong.append(f"{one.label} {one.settings}: {error}")
    assert len({one.label for one in spread}) > 2 * len(TASKS)
    assert not wrong, "\n".join(wrong)
