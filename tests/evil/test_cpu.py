"""Every cheat that can be tried on a CPU is found out for its reason; its honest twin passes.

All of them are a sweep; a few of different kinds are tried with every other test.
"""

from collections.abc import Awaitable, Callable

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.selftest.catalogue import Case, Row, cases
from kernelwright.tools.selftest.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALWAYS = {
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


async def test_without_the_bound_on_errors_one_of_its_evils_is_not_found_out(
    holds_without: Callable[[Defence, Case], Awaitable[bool]],
) -> None:
    """The bound is what finds it, and the suite would show its loss; other defences are a sweep."""
    _, case = ON_CPU["15-plan-half-precision-in-between"]
    assert case.defence is Defence.ERROR_RATIO
    assert not await holds_without(Defence.ERROR_RATIO, case)
