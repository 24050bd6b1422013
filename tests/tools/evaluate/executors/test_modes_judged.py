"""What is called inside torch.compile is judged as it is called, and in guarded memory before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import in_mode
from kernelwright.tools.types import Candidate, Effort, Task, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Library operators that torch.compile fuses stand around the launch.
PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("rows_softmax", args=(aten.neg(aten.neg(x)), y, rows, columns))
    return aten.mul(aten.mul(y, 2.0), 0.5)
"""


@pytest.mark.parametrize(
    "effort", ["screen", pytest.param("certify", marks=pytest.mark.exhaustive)]
)
async def test_a_right_one_is_accepted_and_says_how_it_was_called(
    executor: LocalExecutor,
    rows: Task,
    kernel: Callable[..., Candidate],
    beside_eager_alone: None,
    effort: Effort,
) -> None:
    found = await executor.evaluate(rows, in_mode(kernel(plan=PLAN), "compile"), effort)
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.method.endswith(", inside torch.compile")
    if effort == "certify":
        assert [item.baseline for item in found.comparisons] == ["eager"]


async def test_its_kernels_still_have_guards_around_their_memory(
    executor: LocalExecutor, rows: Task, kernel: Callable[..., Candidate]
) -> None:
    beyond = kernel(plan=PLAN, after="y[rows * columns] = 1.0f;")
    found = await executor.evaluate(rows, in_mode(beyond, "compile"), "screen")
    assert found.verdict is Verdict.OUT_OF_BOUNDS


@pytest.mark.exhaustive
async def test_a_regions_candidate_stands_beside_eager_and_nothing_is_compiled_for_it(
    cpu: Hardware, short_rules: Rules, rows: Task, kernel: Callable[..., Candidate], tmp_path: Path
) -> None:
    executor = LocalExecutor(cpu, tmp_path, seed=0, rules=short_rules)
    try:
        executor.beside_eager_alone(True)
        found = await executor.evaluate(rows, kernel(), "precise")
        assert [item.baseline for item in found.comparisons] == ["eager"]
        assert not any("compile" in phase.name for phase in executor.spent(rows.path)
                       if phase.part == "baselines")  # fmt: skip
    finally:
        await executor.aclose()


async def test_what_no_device_captures_is_refused_in_words(
    executor: LocalExecutor, rows: Task, kernel: Callable[..., Candidate]
) -> None:
    found = await executor.evaluate(rows, in_mode(kernel(), "graph"), "screen")
    assert found.verdict is Verdict.LAUNCH_ERROR
    assert "CUDA graph" in found.verification.reason
