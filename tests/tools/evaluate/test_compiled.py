"""What torch.compile is given ahead of time: inputs without memory, of graphs that need no device.

That what is made so is found later, and not made again, is seen in `test_built.py`.
"""

import pytest
import torch

from tools.evaluate.local.builder import _compiles_on_the_host
from tools.evaluate.worker.compiled import place
from tools.nouns import Task, TracePolicy
from tools.tasks import trace

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.turned = torch.nn.ConvTranspose2d(3, 4, 3)
        self.linear = torch.nn.Linear(8, 5)

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


@pytest.mark.parametrize(
    ("forward", "on_the_host"),
    [
        ("torch.softmax(x, dim=-1) + y", True),
        ("torch.relu(self.conv(x))", True),
        ("self.turned(x)", True),
        ("self.linear(x)", False),
        ("x @ x.transpose(-1, -2)", False),
    ],
)
def test_only_what_tries_nothing_on_the_device_is_compiled_beside_others_work(
    forward: str, on_the_host: bool
) -> None:
    """Inductor tries whether to pad matrix products, and nothing else in its default mode."""
    assert _compiles_on_the_host(task_of(forward)) == on_the_host
