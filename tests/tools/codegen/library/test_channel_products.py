"""Convolutions of single positions are products where channels lie last; others stay calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.ir import PlanLine, Program
from kernelwright.tools.codegen.library.forms.attention import CALLED_CONVOLUTIONS_FORM
from kernelwright.tools.codegen.library.forms.forms import Lowerings
from kernelwright.tools.codegen.library.forms.products import CHANNEL_PRODUCTS_FORM
from kernelwright.tools.codegen.library.kernel_library import FORM, fastest, repertoire_for
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

Check = Callable[..., Any]


class Bottleneck(nn.Module):
    """A ResNet's block in evaluation mode: 1 x 1, 3 x 3 and 1 x 1, each with a norm."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(16, 8, 1, bias=False), nn.Conv2d(8, 16, 1)
        self.window = nn.Conv2d(8, 8, 3, stride, 1, bias=False)
        self.around = nn.Conv2d(16, 16, 1, stride) if stride > 1 else None
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in (8, 8, 16))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.narrow(x)))
        y = torch.relu(self.norms[1](self.window(y)))
        y = self.norms[2](self.wide(y))
        return torch.relu(y + (x if self.around is None else self.around(x)))


class Part(nn.Module):
    """One channel of several, computed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)[:, 1:2]


CASES: dict[str, tuple[nn.Module, tuple[int, ...], int, int]] = {
    # The module, its input, convolutions that stay calls, and products.
    "a block": (Bottleneck(), (2, 16, 9, 8), 1, 2),
    "a block that leaves positions out": (Bottleneck(2), (2, 16, 9, 8), 2, 2),
    "of lines": (nn.Sequential(nn.Conv1d(16, 8, 1), nn.GELU(), nn.Conv1d(8, 4, 3), nn.GELU()),
                 (3, 16, 21), 1, 1),
    "of volumes": (nn.Sequential(nn.Conv3d(4, 8, 1), nn.SiLU()), (2, 4, 5, 3, 7), 0, 1),
    "of images that nothing is known of": (nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 1), nn.SiLU()),
                                           (2, 4, 5, 6), 0, 1),
}  # fmt: skip
NONE: dict[str, nn.Module] = {
    "windows alone": nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()),
    "padded": nn.Conv2d(4, 8, 1, padding=1),
    "in groups": nn.Sequential(nn.Conv2d(4, 8, 1, groups=2), nn.ReLU()),
    "returned as it is": nn.Conv2d(4, 8, 1),
    "of one channel": nn.Sequential(Part(), nn.Conv2d(1, 8, 1), nn.ReLU()),
    "transposed": nn.Sequential(nn.ConvTranspose2d(4, 8, 1), nn.ReLU()),
}


def _program(graph: Any) -> Program | None:
    form = CHANNEL_PRODUCTS_FORM.form(Lowerings(graph, tuple(graph.inputs)))
    return None if form is None else form.program


@pytest.mark.parametrize("name", CASES)
def test_single_positions_are_products_and_windows_stay_calls(
    check: Check, interpret: Any, name: str
) -> None:
    module, shape, called, multiplied = CASES[name]
    x = torch.randn(*shape)
    checked = check(module, x)
    program = _program(checked.graph)
    assert program is not None
    weights = {key: value.detach() for key, value in module.state_dict().items()}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=2e-5)
    lines = [step for step in program.steps if isinstance(step, PlanLine)]
    assert sum(line.operator == "aten.convolution.default" for line in lines) == called
    assert sum(loop.family == "product" for loop in program.loops) == multiplied


@pytest.mark.parametrize("name", NONE)
def test_what_has_no_single_positions_has_no_such_form(check: Check, name: str) -> None:
    assert _program(check(NONE[name], torch.randn(2, 4, 6, 5)).graph) is None


def test_where_a_form_cannot_be_the_task_is_not_lowered_for_it(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Lowering] = []

    def lowered(self: Lowerings, lowering: Lowering) -> Program:
        asked.append(lowering)
        return lower(self.changed, self.parameters, lowering)

    monkeypatch.setattr(Lowerings, "lowered", lowered)
    graph = check(NONE["windows alone"], torch.randn(2, 4, 6, 5)).graph
    lowerings = Lowerings(graph, tuple(graph.inputs))
    assert lowerings.convolved is not None
    assert CHANNEL_PRODUCTS_FORM.form(lowerings) is None
    assert CALLED_CONVOLUTIONS_FORM.form(lowerings) is None
    assert asked == [Lowering(products=True, convolutions=True)]


class Apart(nn.Module):
    """A convolution of one channel of several, and another one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.more = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, _ = x.chunk(3, 1)
        return torch.relu(self.more(torch.relu(self.one(a)))) * b


def test_what_is_refused_leaves_nothing_behind(check: Check, interpret: Any) -> None:
    module, x = Apart(), torch.randn(2, 3, 6, 5)
    checked = check(module, x)
    program = _program(checked.graph)
    assert program is not None
    weights = {key: value.detach() for key, value in module.state_dict().items()}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=2e-5)


def test_what_follows_is_done_where_results_are_made(check: Check) -> None:
    """But for what is returned: beside a residual a tile would be turned as it is stored."""
    module = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU(), Bottleneck(), Bottleneck())
    program = _program(check(module, torch.randn(2, 16, 9, 8)).graph)
    assert program is not None
    products = [loop for loop in program.loops if loop.family == "product"]
    follows = ["relu" in {stmt.op for stmt in loop.body} for loop in products]
    assert follows == [True, True, True, False]
    assert all(len(loop.stores) == 1 for loop in products)


def test_what_a_norm_computes_of_a_channel_is_stored(check: Check) -> None:
    """A tile would take the root of a variance again for every result."""
    program = _program(check(Bottleneck(), torch.randn(2, 16, 9, 8)).graph)
    assert program is not None
    rooted = [loop for loop in program.loops if "sqrt" in {stmt.op for stmt in loop.body}]
    assert rooted
    assert all(len(loop.outer) == 1 and not loop.inner for loop in rooted)


STAGE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.ModuleList(nn.Conv2d(1024, 256, 1, bias=False) for _ in range(4))
        self.wide = nn.ModuleList(nn.Conv2d(256, 1024, 1, bias=False) for _ in range(4))
        self.one = nn.ModuleList(nn.BatchNorm2d(256) for _ in range(4))
        self.two = nn.ModuleList(nn.BatchNorm2d(1024) for _ in range(4))
        self.eval().half()

    def forward(self, x):
        for narrow, one, wide, two in zip(self.narrow, self.one, self.wide, self.two):
            x = torch.relu(two(wide(torch.relu(one(narrow(x))))) + x)
        return x

def get_inputs():
    return [torch.randn(64, 1024, 14, 14).half()]
"""


def test_a_half_type_stage_is_expected_to_be_fastest_by_tensor_maps() -> None:
    task = trace(STAGE, "/tmp/stage.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, hardware_profile("H200"))
    chosen = fastest(repertoire.options())
    assert chosen[FORM] == CHANNEL_PRODUCTS_FORM.name
    assert list(chosen.values()).count("wgmma_maps") == 8
    assert "aten.convolution" not in repertoire.draft(chosen).plan
