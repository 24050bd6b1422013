"""Small tasks, kernels for them and an executor with short limits, all of them real."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Evaluation,
    Task,
    TracePolicy,
)

# Short where nothing is claimed of times; a first run may take as long as a busy machine needs.
SHORT = Rules(
    candidate_s=60.0,
    screen_s=0.01,
    screen_samples_max=4,
    precise_s=0.02,
    certify_s=0.02,
    mode_s=0.02,
    server_gap_s=0.002,
    pairs_min=3,
    pairs_max=5,
    warm_up_s=0.0,
    compile_ahead=False,
)

ROWS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)

def get_inputs():
    return [torch.randn(37, 129)]
"""


@pytest.fixture(scope="session")
def short_rules() -> Rules:
    return SHORT


@pytest.fixture(scope="session")
def cpu() -> Hardware:
    """The CPU here with ceilings that nothing is held against."""
    return detect("cpu").model_copy(update={"measured": True, "bandwidth_gb_s": 1e6})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(
    tmp_path_factory: pytest.TempPathFactory, cpu: Hardware
) -> AsyncIterator[LocalExecutor]:
    """One executor for the tests of a file, as a worker takes seconds to start."""
    made = LocalExecutor(cpu, tmp_path_factory.mktemp("scratch"), seed=7, rules=SHORT)
    yield made
    await made.aclose()


@pytest.fixture(scope="session")
def rows(made_once: Callable[[str, Callable[[Path], str]], str]) -> Task:
    """A softmax of scaled rows, traced from a file, once for all processes: a task is a value."""

    def made(folder: Path) -> str:
        path = folder / "rows.py"
        path.write_text(ROWS, encoding="utf-8")
        task = trace(ROWS, str(path), TracePolicy())
        assert isinstance(task, Task), task
        return task.model_dump_json()

    return Task.model_validate_json(made_once("rows", made))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beside_eager_alone(executor: LocalExecutor, rows: Task) -> None:
    """Certifying is quicker by a minute without a compiler's baseline, where that shows nothing."""
    known = await executor.baselines(rows, eager_only=True)
    assert isinstance(known, Baselines)
    # A test before may have had the compiler's built.
    eager = tuple(item for item in known.items if item.name == "eager")
    left_out = Baseline(name="compile", failure="left out")
    executor.remember(rows, Baselines(items=(*eager, left_out)))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a user's file."""

    def file(text: str) -> Path:
        path = tmp_path / "model.py"
        path.write_text(text, encoding="utf-8")
        return path

    return file


PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("rows_softmax", args=(x, y, rows, columns))
    return y
"""

KERNEL = """
#include <cmath>
#include <cstdint>
%(head)s
extern "C" void rows_softmax(const float* x, float* y, int64_t rows, int64_t columns) {
    %(before)s
    for (int64_t r = 0; r < rows; r++) {
        const float* a = x + r * columns;
        float* b = y + r * columns;
        double top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < columns; c++) top = a[c] * 0.5 > top ? a[c] * 0.5 : top;
        for (int64_t c = 0; c < columns; c++) sum += std::exp(a[c] * 0.5 - top);
        for (int64_t c = 0; c < columns; c++) b[c] = %(value)s;
    }
    %(after)s
}
"""

MakeKernel = Callable[..., Candidate]


@pytest.fixture
def kernel() -> MakeKernel:
    """An honest kernel for `rows`, or one with its parts replaced."""

    def make(
        *,
        head: str = "",
        before: str = "",
        value: str = "float(std::exp(a[c] * 0.5 - top) / sum)",
        after: str = "",
        plan: str = PLAN,
    ) -> Candidate:
        text = KERNEL % {"head": head, "before": before, "value": value, "after": after}
        return new_candidate("cpp", text, plan)

    return make


@pytest.fixture
def verdict_of(executor: LocalExecutor, rows: Task) -> Callable[..., object]:
    """Screen a candidate for `rows`."""

    async def screen(candidate: Candidate) -> Evaluation:
        return await executor.evaluate(rows, candidate, "screen")

    return screen
