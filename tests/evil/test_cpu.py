"""Every cheat that can be tried on a CPU is found out for its reason; its honest twin passes."""

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.selftest.catalogue import Case, Row, cases
from kernelwright.tools.selftest.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_CPU = list(cases("cpu"))
NAMES = [f"{row.row}-{case.kind}-{case.name.replace(' ', '-')}" for row, case in ON_CPU]


@pytest.mark.parametrize(("row", "case"), ON_CPU, ids=NAMES)
async def test_the_evil_is_rejected_for_its_reason_and_its_twin_passes(
    executor: LocalExecutor, suite: Suite, row: Row, case: Case
) -> None:
    if case.defence is Defence.SANDBOX and not executor.isolation.is_a_wall:
        pytest.skip("no wall stands on this machine: the table says so there")
    outcome = await suite.case(row, case)
    assert outcome.caught, (outcome.evil.verdict, outcome.evil.said)
    assert outcome.twin_accepted, (outcome.twin.verdict, outcome.twin.said)
