"""The truth of a forward that names its types: nothing in it is rounded on the way."""

import pytest
import torch

from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.tasks.widened import Widened
from kernelwright.tools.types import Task

FILE = """
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        {named}


def get_inputs():
    return [torch.randn(4, 16)]
"""
NAMED = {
    "a cast before a product": (
        "return self.inner(x.float()).relu()",
        "return self.inner(x).relu()",
    ),
    "a part in half the width": (
        "return (F.gelu(x.bfloat16() * 1.7).softmax(-1) * 3).float()",
        "return F.gelu(x * 1.7).softmax(-1) * 3",
    ),
    "what is made": (
        "return self.inner(x + torch.ones(4, 16, dtype=torch.float32).half())",
        "return self.inner(x + 1)",
    ),
    "numbers of Python's": (
        "return x @ torch.tensor([[0.25] * 3] * 16, dtype=torch.float32)",
        "return x @ x.new_full((16, 3), 0.25)",
    ),
    "a type to compute in": (
        "return self.inner(x.softmax(-1, dtype=torch.float32)).sum(0, dtype=torch.float32)",
        "return self.inner(x.softmax(-1)).sum(0)",
    ),
    "a buffer that is written to": (
        "y = self.inner(x.to(torch.float32)); self.seen.add_(y.detach().mean(0).float()); "
        "return y + self.seen",
        "y = self.inner(x); return y + y.detach().mean(0)",
    ),
}


@pytest.mark.parametrize("named", NAMED)
def test_a_copy_in_float64_computes_in_float64_whatever_types_are_named(attempt, named):
    results = []
    for text in NAMED[named]:
        task = attempt(FILE.format(named=text))
        assert isinstance(task, Task), task
        reference = Reference.build(task, "cpu").double()
        (result,) = reference.forward(draw(task, "normal", 1, "cpu"))
        assert result.dtype is torch.float64
        results.append(result)
    torch.testing.assert_close(*results, rtol=1e-14, atol=1e-14)


def test_a_type_of_eight_bits_and_bits_that_are_read_otherwise_stay():
    x = torch.randn(4, 16, dtype=torch.float64)
    with Widened():
        eighths = x.to(torch.float8_e4m3fn)
        assert eighths.dtype is torch.float8_e4m3fn
        assert eighths.float().dtype is torch.float64
        halves = torch.arange(8).view(torch.float32)
    assert torch.equal(halves.double(), torch.arange(8).view(torch.float32).double())
