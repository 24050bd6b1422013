"""tanh(softplus(x)) takes one exponential, and is what it was for every input."""

import pytest
import torch
from torch.nn import functional as F

from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch
from torch.nn import functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(64)]
"""


def operators(forward: str, tmp_path) -> list[str]:
    task = trace(SOURCE.format(forward=forward), str(tmp_path / "model.py"), TracePolicy())
    assert isinstance(task, Task), task
    program = lower(task.graph, tuple(spec.name for spec in task.inputs))
    return [stmt.op for loop in program.loops for stmt in loop.body]


@pytest.mark.parametrize(
    "forward",
    [
        "F.mish(x)",
        "x * torch.tanh(F.softplus(x))",
        "F.softplus(x).tanh()",
        "F.softplus(x, threshold=30).tanh()",
    ],
)
def test_neither_logarithm_nor_hyperbolic_tangent_is_left(forward, tmp_path):
    found = operators(forward, tmp_path)
    assert found.count("exp") == 1
    assert not {"tanh", "log1p"} & set(found)


@pytest.mark.parametrize(
    "forward",
    [
        "torch.tanh(x)",
        "F.softplus(x, beta=2).tanh()",
        "F.softplus(x, threshold=1).tanh()",
        "torch.where(x > 20, x, torch.log1p(torch.exp(-x))).tanh()",
    ],
)
def test_what_is_something_else_stays(forward, tmp_path):
    assert "tanh" in operators(forward, tmp_path)


def test_the_identity_holds_from_end_to_end_in_double_and_single():
    ends = [-float("inf"), -1000.0, -104.0, -50.0, -1e-8, 0.0, 1e-8, 19.999, 20.0, 20.001, 88.0]
    x = torch.cat((torch.tensor([*ends, 1e30, float("inf")]), torch.linspace(-30, 30, 20001)))
    for dtype, close in ((torch.float64, 1e-15), (torch.float32, 4e-7)):
        power = torch.exp(x.to(dtype).clamp(max=20.0))
        both = power * (power + 2)
        right = torch.tanh(F.softplus(x.double()))
        off = (both / (both + 2) - right).abs()
        assert bool((off <= close * right + 1e-44).all())
    assert torch.exp(torch.tensor(float("nan")).clamp(max=20.0)).isnan()
