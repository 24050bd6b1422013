"""A small task, and a way to have foreign code judged against it in real processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.foreign.host.judges import ForeignJudge
from kernelwright.tools.evaluate.messages import Foreign, ForeignRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.softmax(x, dim=1) * self.weight

def get_inputs():
    return [torch.randn(32, 200)]

def get_init_inputs():
    return [200]
"""


@pytest.fixture(scope="session")
def task(made_once) -> Task:
    def made(folder: Path) -> str:
        path = folder / "task.py"
        path.write_text(TASK)
        found = trace(TASK, str(path), TracePolicy())
        assert isinstance(found, Task)
        return found.model_dump_json()

    return Task.model_validate_json(made_once("foreign-task", made))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def foreign_judge(tmp_path_factory) -> AsyncIterator[ForeignJudge]:
    """One judge for the tests of a file, whose judge stays as it does for a person."""
    made = ForeignJudge(tmp_path_factory.mktemp("judge"), "cpu")
    yield made
    await made.aclose()


@pytest.fixture
def judged(task, foreign_judge: ForeignJudge):
    """Judges a ModelNew: `await judged(source)`, with `against` baselines to time it beside."""

    async def judge(source: str, *, against=(), rules: Rules | None = None, allow=()):
        from kernelwright.tools.hardware import detect

        request = ForeignRequest(
            task=task.model_copy(update={"allow": tuple(allow)}),
            hardware=detect("cpu"),
            rules=rules or Rules(),
            foreign=Foreign(name="candidate", source=source),
            seed=7,
            compare_to=tuple(against),
        )
        return await foreign_judge.judge(request)

    return judge
