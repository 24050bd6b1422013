"""What kernels of convolutional networks are expected to take, beside what they took on an H200.

Measured times are those of benchmarks/results/h200/model_kernels_convolutions.jsonl, in us.
"""

from __future__ import annotations

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Loop, PlanLine
from kernelwright.tools.codegen.ir.roofline import line_ms
from kernelwright.tools.codegen.library.emitters import kinds_of
from kernelwright.tools.codegen.library.forms.forms import Form, forms
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    fastest,
    repertoire_for,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

H200 = hardware_profile("h200")
SEPARABLE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.Conv2d(64, CHANNELS, 1, bias=False)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.windows = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
        self.norm_of_windows = nn.BatchNorm2d(CHANNELS)
        self.behind = nn.Conv2d(CHANNELS, 64, 1, bias=False)

    def forward(self, x):
        x = torch.relu(self.norm(self.before(x)))
        return self.behind(torch.relu(self.norm_of_windows(self.windows(x))))

def get_inputs():
    return [torch.empty(10, 64, SIDE, SIDE)]
"""
RESIDUAL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(256, 1024, 1, bias=False)
        self.norm = nn.BatchNorm2d(1024)
        self.to(torch.DTYPE)
        self.eval()

    def forward(self, x, residual):
        return torch.relu(self.norm(self.convolution(x)) + residual)

def get_inputs():
    kind = torch.DTYPE
    return [torch.empty(64, 256, 14, 14, dtype=kind), torch.empty(64, 1024, 14, 14, dtype=kind)]
"""
WINDOW = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(64, 64, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.relu(self.convolution(x))

def get_inputs():
    return [torch.empty(10, 64, 224, 224)]
"""


def task_of(text: str, **words: object) -> Task:
    for word, value in words.items():
        text = text.replace(word.upper(), str(value))
    task = trace(text, "/tmp/convolving.py", TracePolicy(device="cpu"))
    assert isinstance(task, Task), task
    return task


def forms_of(task: Task) -> dict[str, Form]:
    emitter = CudaEmitter()

    def takes(loop: Loop) -> bool:
        return bool(emitter.strategies(loop, H200))

    return {one.name: one for one in forms(task, kinds=kinds_of(emitter, H200), takes=takes)}


def predicted_us(loop: Loop, name: str) -> float:
    emitter = CudaEmitter()
    (way,) = (one for one in emitter.strategies(loop, H200) if one.name == name)
    return 1e3 * emitter.predicted_ms(loop, way, H200)


@pytest.mark.parametrize(
    ("channels", "side", "strategy", "measured"),
    [
        (32, 112, "cluster_rows_stream", 169.3),
        (128, 56, "cluster_rows_registers", 169.3),
        (256, 28, "block_rows_registers", 46.7),
        (512, 14, "block_rows_registers", 22.3),
        (1024, 7, "block_rows_registers", 15.3),
    ],
)
def test_a_norm_that_computes_windows_in_each_walk_is_expected_to_take_as_long(
    channels: int, side: int, strategy: str, measured: float
) -> None:
    written = forms_of(task_of(SEPARABLE, channels=channels, side=side))["as_written"].program
    loop = max(written.loops, key=lambda one: len(one.body))
    assert predicted_us(loop, strategy) == pytest.approx(measured, rel=0.25)


def test_windows_between_norms_are_expected_to_be_faster_as_kernels_of_their_own() -> None:
    chosen = fastest(repertoire_for(task_of(SEPARABLE, channels=128, side=56), H200).options())
    assert chosen[FORM] in ("summed_windows", "windows_and_convolutions")
    assert "window_sums" in chosen.values()


def test_windows_stand_beside_convolutions_of_ours_where_there_are_kernels_for_both() -> None:
    task = task_of(SEPARABLE, channels=32, side=28)
    found = repertoire_for(task, H200).options()
    (one,) = (option for option in found if option.strategy.name == "windows_and_convolutions")
    assert one.predicted_ms == 0, "nothing of it stays with the library"
    others = repertoire_for(task, hardware_profile("a100")).options()
    assert one.strategy.name not in {option.strategy.name for option in others}


@pytest.mark.parametrize(
    ("dtype", "strategy", "measured"),
    [("float32", "streamed_wgmma", 140.2), ("bfloat16", "mma_tiles", 148.8)],
)
def test_what_results_read_and_compute_behind_a_product_is_expected(
    dtype: str, strategy: str, measured: float
) -> None:
    (loop,) = forms_of(task_of(RESIDUAL, dtype=dtype))["convolutions"].program.loops
    assert predicted_us(loop, strategy) == pytest.approx(measured, rel=0.15)


def test_a_convolution_pays_for_the_layouts_that_the_library_turns() -> None:
    found = forms_of(task_of(WINDOW))
    for name, measured in (("as_written", 305.0), ("channels_last", 158.0)):
        lines = [step for step in found[name].program.steps if isinstance(step, PlanLine)]
        assert sum(line_ms(line, H200) for line in lines) == pytest.approx(measured / 1e3, rel=0.2)
