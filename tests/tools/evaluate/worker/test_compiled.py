"""What torch.compile is given ahead of time: inputs without memory, of graphs that need no device.

That what is made so is found later, and not made again, is seen in `test_built.py`.
"""

from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.evaluate.executors.local.builder import _ALIGNED, _compiles_on_the_host
from kernelwright.tools.evaluate.worker.compiled import compile_only, place
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.turned = torch.nn.ConvTranspose2d(3, 4, 3)
        self.linear = torch.nn.Linear(8, 5)
        self.aligned = torch.nn.Linear(8, 16)
        self.steps = torch.nn.GRU(8, 8)

    def forward(self, x, y):
        return {forward}

def get_inputs():
    return [torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last), {second}]
"""


def task_of(forward: str, second: str = "torch.randn(8).half()") -> Task:
    task = trace(SOURCE.format(forward=forward, second=second), "model.py", TracePolicy())
    assert isinstance(task, Task), task
    return task


def test_placed_inputs_are_laid_out_as_the_tasks_own_and_keep_no_memory() -> None:
    x, y = place(task_of("torch.relu(x) + y"), "cpu")
    assert (x.shape, x.stride(), x.dtype) == ((2, 3, 8, 8), (192, 1, 24, 3), torch.float32)
    assert (y.shape, y.stride(), y.dtype) == ((8,), (1,), torch.float16)
    assert x.untyped_storage().size() == y.untyped_storage().size() == 0


def test_an_input_that_repeats_itself_is_not_placed() -> None:
    with pytest.raises(ValueError, match="y is no plain tensor"):
        place(task_of("x + y", "torch.randn(1).expand(8)"), "cpu")


def test_a_plain_number_is_placed_as_it_is() -> None:
    x, factor = place(task_of("x * y", "2.5"), "cpu")
    assert isinstance(x, torch.Tensor)
    assert factor == 2.5


@pytest.mark.parametrize(
    ("forward", "given", "whole"),
    [
        (lambda x: torch.relu(x) + 1, 1, True),
        (lambda x: (torch._dynamo.graph_break(), torch.relu(x) + 1)[1], 1, False),
        (lambda x: [x.exp(), torch._dynamo.graph_break(), x + 1], 1, False),
    ],
    ids=["one graph", "a break first", "a break between"],
)
def test_a_compilation_says_whether_it_left_anything_to_be_compiled(
    forward: Callable[[torch.Tensor], object], given: int, whole: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return forward(x)

    graphs: list[torch.fx.GraphModule] = []
    name = "torch._inductor.compile_fx.compile_fx"
    monkeypatch.setattr(name, lambda graph, inputs: graphs.append(graph))
    assert compile_only(Model(), [torch.ones(4)]) == whole
    assert len(graphs) == given


def test_a_graph_that_cannot_be_compiled_is_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = []

    def failing(graph: torch.fx.GraphModule, inputs: object) -> None:
        given.append(graph)
        raise RuntimeError("no compiler")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", failing)
    assert not compile_only(torch.nn.ReLU(), [torch.ones(4)])
    assert len(given) == 1


@pytest.mark.parametrize(
    ("forward", "on_the_host"),
    [
        ("torch.softmax(x, dim=-1)", True),
        ("torch.relu(self.conv(x))", True),
        ("self.turned(x)", True),
        ("self.linear(x)", False),
        ("x @ x.transpose(-1, -2)", False),
        ("torch.relu(self.aligned(y))", True),
        ("y @ y.T", True),
        ("y[:3] @ y.T", False),
        ("y @ y.T[:, :1]", True),
        ("torch.einsum('ik,jk->ij', y, y)", True),
        ("self.steps(y)[0]", False),
    ],
)
def test_only_what_tries_nothing_on_the_device_is_compiled_beside_others_work(
    forward: str, on_the_host: bool
) -> None:
    """Inductor tries whether to pad products' sizes, and nothing else in its default mode."""
    second = "torch.randn(16, 8)" if "y" in forward else "torch.randn(8)"
    assert _compiles_on_the_host(task_of(forward, second)) == on_the_host


def test_aligned_sizes_are_padded_in_no_type() -> None:
    # Imported here, as every process that collects tests would import the compiler.
    from torch._inductor.fx_passes.pad_mm import get_alignment_size_dtype

    types = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    assert all(_ALIGNED % (get_alignment_size_dtype(dtype) or 1) == 0 for dtype in types)
