"""A process that earlier tasks spoiled is replaced, and its replacement is asked once more."""

from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.evaluate.executors.local.baselines import KnownBaselines
from kernelwright.tools.evaluate.executors.local.builder import Builder, Reading
from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.evaluate.messages import (
    Audited,
    AuditRequest,
    BaselineMeasured,
    Reply,
    Request,
)
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Conditions,
    Measurement,
    Refusal,
    Task,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
FALLEN = Ended(how="exited", status=-11, stage=None)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """The workers of a device whose ceilings are known; a test says how they answer."""
    made = Workshop(
        hardware_profile("h200"), tmp_path, seed=0, rules=Rules(), lease=None, spares=None
    )

    async def known() -> Hardware:
        return made._known

    monkeypatch.setattr(made, "hardware", known)
    return made


@pytest.fixture
def answers(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> list[Reply | Ended]:
    """What the workers answer, one after the other."""
    left: list[Reply | Ended] = []

    async def ask(*_: object) -> Reply | Ended:
        return left.pop(0)

    monkeypatch.setattr(shop, "ask", ask)
    return left


@pytest.mark.exhaustive
async def test_a_process_that_earlier_tasks_left_no_room_in_is_replaced_and_asked_once_more(
    rows: Task, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def full(task: Task, request: Request, limit_s: float, *others: object) -> Reply:
        asked.append(request.kind)
        if isinstance(request, AuditRequest):
            refusal = Refusal(sentence="out of memory") if len(asked) == 1 else None
            return Reply(answer=Audited(refusal=refusal), retire="full" if refusal else "")
        failure = Baseline(name="eager", failure="out of memory")
        return Reply(answer=BaselineMeasured(baseline=failure), retire="full")

    monkeypatch.setattr(shop, "ask", full)
    assert isinstance(await Reading(shop, Builder(shop)).audit(rows), Task)
    refused = await KnownBaselines(shop, Builder(shop)).measured(rows, eager_only=True)
    assert isinstance(refused, Refusal)
    assert "out of memory" in refused.sentence
    assert asked == ["audit", "audit", "baseline", "baseline"]


async def test_a_process_that_falls_over_while_a_task_is_audited_is_replaced_and_asked_once_more(
    rows: Task, shop: Workshop, answers: list[Reply | Ended]
) -> None:
    answers += [FALLEN, Reply(answer=Audited(refusal=None)), FALLEN, FALLEN]
    reading = Reading(shop, Builder(shop))
    assert isinstance(await reading.audit(rows), Task)
    refused = await reading.audit(rows)
    assert isinstance(refused, Refusal)
    assert "segmentation fault" in refused.sentence
    assert not answers


async def test_a_process_that_falls_over_in_eager_is_replaced_and_asked_once_more(
    rows: Task, shop: Workshop, answers: list[Reply | Ended]
) -> None:
    conditions = Conditions(device="gpu", l2_flushed=True, input_sets=1)
    made = Measurement(
        median_ms=1.0, p10_ms=1.0, p90_ms=1.0, samples_ms=(1.0,), conditions=conditions
    )
    timed = Reply(answer=BaselineMeasured(baseline=Baseline(name="eager", measurement=made)))
    answers += [FALLEN, timed, FALLEN, FALLEN]
    found = await KnownBaselines(shop, Builder(shop)).measured(rows, eager_only=True)
    assert isinstance(found, Baselines)
    eager = found.named("eager")
    assert eager is not None
    assert eager.measurement is not None
    assert eager.measurement.conditions.notes == (
        "asked again: the process before it ended with a segmentation fault",
    )
    refused = await KnownBaselines(shop, Builder(shop)).measured(rows, eager_only=True)
    assert isinstance(refused, Refusal)
    assert "segmentation fault" in refused.sentence
    assert not answers
