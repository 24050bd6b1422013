"""A task that takes no time, for what is said of clocks."""

import pytest

from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(16, 32)]
"""


@pytest.fixture(scope="session")
def relu() -> Task:
    """16 x 32 values, those below 0 replaced."""
    found = trace(SOURCE, "model.py", TracePolicy())
    assert isinstance(found, Task), found
    return found
