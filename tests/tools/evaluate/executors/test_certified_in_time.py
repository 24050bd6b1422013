"""A certification that is to end in time keeps its verdict, and says what had no time."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.executors.local.certification import Certification
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Evaluation, Verdict, Verification

MISSING = "memory errors and races: there was no time left for the sanitizer"


def certification(
    behind_s: float, verdict: Verdict = Verdict.CORRECT
) -> tuple[Certification, SimpleNamespace]:
    """One whose ladder is climbed already, and whose other shapes and sanitizer take so long."""
    found = Evaluation(candidate="c", verification=Verification(verdict=verdict, reason=""))

    class Climbed(Certification):
        async def _fresh(self, request: object) -> Evaluation:
            return found

        async def _hold_out(self, request: object, found: Evaluation) -> Evaluation:
            checked = found.verification.model_copy(update={"shapes": "all"})
            return found.model_copy(update={"verification": checked})

        async def _sanitize(self, request: object, found: Evaluation) -> Evaluation:
            await asyncio.sleep(behind_s)
            return found

    shop = SimpleNamespace(rules=Rules(), device="cpu", scratch=Path())
    baselines = SimpleNamespace(failures=lambda task: ())
    request = SimpleNamespace(task=None, compare_to=(), rules=Rules())
    return Climbed(shop, baselines, SimpleNamespace()), request  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", [Verdict.CORRECT, Verdict.WRONG_RESULT])
async def test_what_comes_behind_the_comparisons_ends_with_the_time(verdict: Verdict) -> None:
    made, request = certification(30.0, verdict)
    made.until_s = time.monotonic() + 0.1
    found = await made._certified(request)  # type: ignore[arg-type]
    assert found.verdict is verdict
    told = found.verification.not_verified
    assert told == ((MISSING,) if verdict is Verdict.CORRECT else ())
    assert found.verification.shapes == "all"  # what was done in time stands


async def test_without_an_end_nothing_is_left_out() -> None:
    made, request = certification(0.1)
    found = await made._certified(request)  # type: ignore[arg-type]
    assert found.verification.not_verified == ()


def test_comparisons_leave_time_for_what_comes_behind_them() -> None:
    made, _ = certification(0.0)
    assert made._compared_until_s() is None
    now = time.monotonic()
    made.until_s = now + 10.0
    assert made._compared_until_s() == pytest.approx(now + 7.0, abs=0.1)
    made.until_s = now + 60.0
    assert made._compared_until_s() == pytest.approx(now + 55.0, abs=0.1)
