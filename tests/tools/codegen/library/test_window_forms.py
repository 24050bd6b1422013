"""Weighted windows as one loop of sums are a form of a task, where there are kernels for those."""

from __future__ import annotations

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.library.kernel_library import FORM, fastest, repertoire_for
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

FORM_NAME = "summed_windows"
SOURCE = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.ones(CHANNELS, 1, SIDES))

    def blur(self, x):
        return F.conv2d(x, self.window, padding=PADDING, groups=CHANNELS)

    def forward(self, x):
        return self.blur(x * x) - self.blur(x) ** 2

def get_inputs():
    return [torch.empty(8, CHANNELS, 128, 128)]
"""


def _task(sides: str, padding: int = 0) -> Task:
    text = SOURCE.replace("SIDES", sides).replace("PADDING", str(padding)).replace("CHANNELS", "4")
    task = trace(text, "/tmp/blurred.py", TracePolicy())
    assert isinstance(task, Task), task
    return task


def test_large_windows_are_summed_together_and_expected_to_be_fastest() -> None:
    repertoire = repertoire_for(_task("11, 11", 5), hardware_profile("H200"))
    chosen = fastest(repertoire.options())
    assert chosen[FORM] == FORM_NAME
    assert [name for name in chosen.values() if name != FORM_NAME] == ["window_sums"]
    assert "aten" not in repertoire.draft(chosen).plan


@pytest.mark.parametrize("sides", ["1, 5", "5, 1", "2, 40"])
def test_windows_of_which_lines_share_nothing_have_no_such_form(sides: str) -> None:
    options = repertoire_for(_task(sides), hardware_profile("H200")).options()
    assert FORM_NAME not in {option.strategy.name for option in options}


def test_a_language_without_kernels_for_sums_has_no_such_form() -> None:
    options = repertoire_for(_task("3, 3", 1), hardware_profile("cpu")).options()
    assert FORM_NAME not in {option.strategy.name for option in options}
