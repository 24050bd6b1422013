"""Every cheat that can be tried on a CPU is found out for its reason; its honest twin passes.

All of them are a sweep; a few of different kinds are tried with every other test.
"""

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.selftest.catalogue import Case, Row, cases
from kernelwright.tools.selftest.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALWAYS = {
    "5-plan-recycled-memory-says-that-it-was-done",
    "9-foreign-looks-through-all-objects",
    "15-plan-half-precision-in-between",
    "19-plan-writes-past-the-end",
    "22-foreign-leaves-with-status-0",
}
ON_CPU = {
    f"{row.row}-{case.kind}-{case.name.replace(' ', '-')}": (row, case)
    for row, case in cases("cpu")
}
CASES = [
    pytest.param(*pair, id=name, marks=() if name in ALWAYS else pytest.mark.exhaustive)
    for name, pair in ON_CPU.items()
]


async def test_those_that_are_always_tried_are_of_the_suite() -> None:
    assert set(ON_CPU) >= ALWAYS


@pytest.mark.parametrize(("row", "case"), CASES)
async def test_the_evil_is_rejected_for_its_reason_and_its_twin_passes(
    executor: LocalExecutor, suite: Suite, row: Row, case: Case
) -> None:
    if case.defence is Defence.SANDBOX and not executor.isolation.is_a_wall:
        pytest.skip("no wall stands on this machine: the table says so there")
    outcome = await suite.case(row, case)
    assert outcome.caught, (outcome.evil.verdict, outcome.evil.said)
    assert outcome.twin_accepted, (outcome.twin.verdict, outcome.twin.said)
