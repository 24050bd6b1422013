"""Weighted windows as one loop of sums are a form of a task, where there are kernels for those."""

from __future__ import annotations

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    PlaybookRepertoire,
    fastest,
    repertoire_for,
)
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


BLOCK = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.windows = nn.Conv2d(96, 96, 7, padding=3, groups=96)
        self.norm = nn.LayerNorm(96)
        self.up, self.down = nn.Linear(96, 384), nn.Linear(384, 96)
        self.scale = nn.Parameter(torch.ones(96))

    def forward(self, x):
        y = self.norm(self.windows(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(nn.functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 96, 4, stride=4)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.blocks(self.first(x)).mean((2, 3))

def get_inputs():
    return [torch.empty(64, 3, 224, 224)]
"""


@pytest.fixture(scope="module")
def blocks() -> PlaybookRepertoire:
    """Two blocks of a ConvNeXt."""
    task = trace(BLOCK, "/tmp/blocks.py", TracePolicy())
    assert isinstance(task, Task), task
    return repertoire_for(task, hardware_profile("H200"))


def test_windows_under_norms_over_channels_lie_with_channels_last(
    blocks: PlaybookRepertoire,
) -> None:
    """What windows read is computed once, and rows of channels are reduced as they lie."""
    (form, *_) = [option for option in blocks.options() if option.loop == FORM]
    assert form.strategy.memory.startswith("channels last")
    chosen = fastest(blocks.options())
    assert list(chosen.values()).count("warp_rows") == 2
    forms = {option.strategy.name for option in blocks.options() if option.loop == FORM}
    assert {"called_windows", "windows_channels_last", "windows_and_products"} <= forms
    called = blocks.draft({FORM: "called_windows"})
    assert called.plan.count("aten.convolution") == 3
    assert blocks.draft({FORM: "windows_channels_last"}).plan.count("aten.convolution") == 1
    assert "aten.addmm" not in blocks.draft({FORM: "windows_and_products"}).plan


def test_products_behind_norms_of_channels_read_what_the_norm_stores() -> None:
    """Scaled on its way, a factor could not be brought by tensor maps: 580 us where 314 do."""
    text = BLOCK.replace("self.blocks = ", "self.bfloat16()\n        self.blocks = ")
    text = text.replace("Block())", "Block()).bfloat16()").replace("224)]", "224).bfloat16()]")
    task = trace(text, "/tmp/half_blocks.py", TracePolicy())
    assert isinstance(task, Task), task
    options = repertoire_for(task, hardware_profile("H200")).options()
    ways: dict[str, set[str]] = {}
    for option in options:
        ways.setdefault(option.loop, set()).add(option.strategy.name)
    products = [names for loop, names in ways.items() if loop[0] == "F" and "simt_tiles" in names]
    assert len(products) == 3, "alike layers are one"
    assert all("wgmma_maps" in names for names in products)


def test_norms_that_compute_windows_themselves_are_expected_to_take_long(
    blocks: PlaybookRepertoire,
) -> None:
    """Measured on an H200 in bf16: 915 us a norm that computes 7 x 7 windows at this size."""
    times = {
        option.loop: option.predicted_ms / (1 + len(option.others))
        for option in blocks.options()
        if option.form == "as_written" and option.strategy.name == "columns_registers"
    }
    assert max(times.values()) == pytest.approx(0.915, rel=0.5)
