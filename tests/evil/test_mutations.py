"""The suite has teeth: with a defence switched off, a row that names it fails."""

from collections.abc import Iterator

import pytest

from tools.evaluate.defences import Defence
from tools.evaluate.local import LocalExecutor
from tools.evaluate.process.worker import WorkerBrokenError
from tools.nouns import Verdict
from tools.selftest.catalogue import cases, rows
from tools.selftest.nouns import Case
from tools.selftest.suite import RULES, Suite

pytestmark = pytest.mark.asyncio(loop_scope="module")

# No row can show these here, and why; what shows them instead.
ELSEWHERE = {
    Defence.LATE_CHANGES: "what changes late was wrong when it was returned, so other defences "
    "find it first; by itself: tests/tools/evaluate/test_trials.py",
    Defence.FLOOR: "needs a working set beyond every cache; with a floor of its own: "
    "test_elsewhere.py",
    Defence.QUARANTINE: "needs a ratio above ten; with a lower one: test_elsewhere.py",
    Defence.COLD_CACHES: "takes away an advantage, gives no verdict",
    Defence.SEPARATE_PROCESS: "is how the judge is built; nothing switches it off",
    Defence.SANITIZER: "needs compute-sanitizer and a GPU",
}
_VERDICTS_OF_READING = (Verdict.INVALID_PLAN,)


def _shown() -> Iterator[tuple[Defence, list[Case]]]:
    """For each defence the cases on a CPU that it decides while the judge runs, the cheap ones."""
    for defence in Defence:
        named = [case for _, case in cases("cpu") if case.defence is defence]
        ready = [case for case in named if case.verdicts != _VERDICTS_OF_READING]
        plans = [case for case in ready if case.kind == "plan" and not case.certified]
        ready = [case for case in ready if not case.certified]
        if ready and defence not in ELSEWHERE:
            yield defence, plans or ready[:1]


SHOWN = list(_shown())


@pytest.mark.parametrize(("defence", "ready"), SHOWN, ids=[item[0].value for item in SHOWN])
async def test_without_a_defence_a_row_fails(
    executor: LocalExecutor, suite: Suite, defence: Defence, ready: list[Case]
) -> None:
    if defence is Defence.SANDBOX and not executor.isolation.is_a_wall:
        pytest.skip("no wall stands on this machine, so none can be taken away")
    for case in ready:
        if not await _holds_without(defence, case, executor, suite):
            return
    names = ", ".join(case.name for case in ready)
    raise AssertionError(f"without {defence.value} all of these are found out as with it: {names}")


async def _holds_without(
    defence: Defence, case: Case, executor: LocalExecutor, suite: Suite
) -> bool:
    executor.rules = RULES.model_copy(update={"switched_off": (defence,)})
    try:
        found = await suite.evil(case)
    except WorkerBrokenError:
        return False  # the judge itself fell over what the defence keeps away
    finally:
        executor.rules = RULES
    return found.verdict in case.verdicts and all(word in found.said for word in case.words)


async def test_every_defence_is_named_by_a_row_or_said_to_be_shown_elsewhere() -> None:
    named = {case.defence for row in rows() for case in row.case}
    shown = {defence for defence, _ in SHOWN}
    assert shown | set(ELSEWHERE) == set(Defence)
    assert shown <= named


async def test_a_report_says_what_was_switched_off(executor: LocalExecutor, suite: Suite) -> None:
    case = next(case for row, case in cases("cpu") if row.row == 20 and case.kind == "plan")
    executor.rules = RULES.model_copy(update={"switched_off": (Defence.SETUP_TIMED,)})
    try:
        found = await suite.evil(case)
    finally:
        executor.rules = RULES
    assert found.verdict is Verdict.CORRECT
    assert "setup_timed: switched off" in found.said
