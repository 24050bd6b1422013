"""A finalist is timed under other loads as well; the headline stays what it was."""

from collections.abc import Callable

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.types import Candidate, Task, Verdict

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("beside_eager_alone"),
]


@pytest.mark.exhaustive
async def test_a_certified_candidate_has_times_back_to_back_and_after_gaps(
    executor: LocalExecutor, rows: Task, kernel: Callable[..., Candidate]
) -> None:
    found = await executor.evaluate(rows, kernel(), "certify")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    by_mode = {item.mode: item.comparison for item in found.modes}
    assert set(by_mode) == {"offline", "server"}
    assert all(item.candidate_ms > 0 for item in by_mode.values())
    names = {item.baseline for item in found.comparisons}
    assert {item.baseline for item in by_mode.values()} <= names
    assert found.median_ms == min(item.candidate_ms for item in found.comparisons)
    precise = await executor.evaluate(rows, kernel(), "precise")
    assert precise.modes == ()
