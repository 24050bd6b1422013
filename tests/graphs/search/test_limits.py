"""The seconds that a person names hold everything; what they end is said and settles nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.events import Event, Noted
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.search.pace import Took, larger_looks_s, remember
from kernelwright.graphs.search.run import measure_again, resume_search
from kernelwright.graphs.search.summary import status as status_of
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    Effort,
    Evaluation,
    Measurement,
    StageTimes,
    Task,
    Verdict,
    Verification,
)
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]
LIMIT_S = 1.5


def slow(toy: ModuleType) -> object:
    """A judge whose certifications, or torch.compile's baseline, last longer than any limit."""

    class Slow(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        lasts_s = 30.0

        def __init__(self) -> None:
            super().__init__()
            self.certified: list[str] = []
            self.ended: list[str] = []
            self.untils: list[float | None] = []

        def hurry(self, until_s: float | None) -> None:
            self.untils.append(until_s)

        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            if effort == "certify":
                self.certified.append(candidate.id)
                try:
                    await asyncio.sleep(self.lasts_s)
                except asyncio.CancelledError:
                    self.ended.append(candidate.id)
                    raise
            return await super().evaluate(task, candidate, effort)

    return Slow()


def notes(events: list[Event]) -> str:
    return " | ".join(event.words for event in events if isinstance(event, Noted))


async def test_a_certification_ends_with_the_limit_and_what_it_left_is_not_settled(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    events: list[Event] = []
    executor, start = slow(toy), time.monotonic()
    summary = await search(
        executor=executor, events=events, seconds=LIMIT_S, seconds_hold="everything"
    )
    assert time.monotonic() - start < LIMIT_S + 3.0
    assert summary.status == "not_settled"
    assert summary.best is not None
    assert summary.best.timed != "certified"
    assert executor.certified == executor.ended == [summary.best.candidate]  # type: ignore[attr-defined]
    assert "over before " in notes(events)
    assert f"kernelwright measure {summary.run} certifies it" in notes(events)
    # The judge was told when, and afterwards that it may take its time.
    told, after = executor.untils  # type: ignore[attr-defined]
    assert told is not None
    assert start < told < start + LIMIT_S + 1.0
    assert after is None


async def test_without_a_limit_a_certification_may_last(search: Search, toy: ModuleType) -> None:
    executor = slow(toy)
    executor.lasts_s = 0.5  # type: ignore[attr-defined]
    summary = await search(executor=executor, seconds=0.2)
    assert summary.best is not None
    assert summary.best.timed == "certified"
    assert executor.untils == []  # type: ignore[attr-defined]


async def test_a_certification_that_began_in_time_may_end_a_quarter_later(
    search: Search, toy: ModuleType
) -> None:
    limit_s, start = 4.0, time.monotonic()

    class Late(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            if effort == "certify":
                await asyncio.sleep(start + limit_s + 0.75 - time.monotonic())
            return await super().evaluate(task, candidate, effort)

    summary = await search(executor=Late(), seconds=limit_s, seconds_hold="everything")
    assert summary.best is not None
    assert summary.best.timed == "certified"
    assert limit_s < time.monotonic() - start < 1.25 * limit_s + 2.0


async def test_what_was_cut_off_replays_and_is_certified_when_it_is_measured_again(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search(executor=slow(toy), seconds=LIMIT_S, seconds_hold="everything")
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None
    assert told.ended == ""
    # An earlier version would have said that nothing was faster.
    archive = Archive.open(summary.run, tmp_path)
    archive.record_summary(summary.model_copy(update={"status": "no_improvement"}))
    archive.close()
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None
    again = await measure_again(summary.run, home=tmp_path, executor=toy.ToyExecutor())
    assert isinstance(again, Summary)
    assert again.status == "improved"
    # What was certified after the search had ended is no decision of the search.
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None
    assert told.same > 0


async def test_more_seconds_certify_what_the_first_ones_cut_off(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search(executor=slow(toy), seconds=LIMIT_S, seconds_hold="everything")
    assert summary.status == "not_settled"
    more = await resume_search(
        summary.run,
        home=tmp_path,
        seconds=60.0,
        executor=toy.ToyExecutor(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )
    assert isinstance(more, Summary)
    assert more.status == "improved"


async def test_a_baseline_that_takes_longer_than_the_limit_is_not_waited_for(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    class Compiling(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def baselines(self, task: Task, *, eager_only: bool = False) -> object:
            if not eager_only:
                await asyncio.sleep(30.0)
            return await super().baselines(task, eager_only=eager_only)

    events: list[Event] = []
    start = time.monotonic()
    summary = await search(
        executor=Compiling(), events=events, seconds=LIMIT_S, seconds_hold="everything"
    )
    assert time.monotonic() - start < LIMIT_S + 4.0
    assert summary.status == "not_settled"
    assert "PyTorch's own ways were not all made within 1.5 s" in notes(events)
    archive = Archive.open(summary.run, tmp_path)
    baselines = archive.record().baselines
    archive.close()
    assert baselines is not None
    assert [item.name for item in baselines.items] == ["eager"]


def screened(screen_s: float, verify_s: float, samples: int) -> Evaluation:
    times = (1.0,) * samples
    return Evaluation(
        candidate="c",
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        screen=Measurement(
            median_ms=1.0, p10_ms=1.0, p90_ms=1.0, samples_ms=times,
            conditions=Conditions(device="toy", l2_flushed=True, input_sets=1),
        ),
        stages=StageTimes(screen_s=screen_s, verify_s=verify_s),
    )  # fmt: skip


def test_a_large_models_certification_is_foreseen_from_its_screening() -> None:
    assert larger_looks_s((), 2) == 0.0
    assert larger_looks_s((screened(0.5, 0.4, 5),), 2) == 0.0
    # Five samples of a second each: twenty beside each of two baselines, and verified four times.
    assert larger_looks_s((screened(7.0, 3.0, 5),), 2) == pytest.approx(12.0 + 40.0 - 8.0)


@pytest.mark.parametrize(("holds", "looks"), [("everything", False), ("certification", True)])
async def test_no_precise_look_begins_that_would_take_of_the_certification(
    search: Search, toy: ModuleType, tmp_path: Path, holds: str, looks: bool
) -> None:
    """Of 12 seconds 6 are for certifying, and the last before that is for no precise look."""
    took = Took(depth="x", comparing_s=1, searching_s=1, profiling_s=0, certifying_s=6.0)
    remember(tmp_path, toy.HARDWARE, took)

    class Late(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            if effort == "screen" and len(self.asked) == 1:
                await asyncio.sleep(5.4)
            return await super().evaluate(task, candidate, effort)

    executor = Late()
    await search(executor=executor, rounds=1, tuning_trials=0, seconds=12.0, seconds_hold=holds)
    efforts = [effort for _, effort in executor.asked]
    assert ("precise" in efforts) is looks
    assert efforts[-1] == "certify"


async def test_a_screening_that_the_limit_ends_costs_nothing_but_itself(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    class Stuck(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            if [one for one in self.asked if one[1] == "screen" and one[0] != "compile"][1:]:
                await asyncio.sleep(30.0)
            return await super().evaluate(task, candidate, effort)

    took = Took(depth="x", comparing_s=1, searching_s=1, profiling_s=0, certifying_s=0.1)
    remember(tmp_path, toy.HARDWARE, took)
    start = time.monotonic()
    summary = await search(executor=Stuck(), seconds=LIMIT_S, seconds_hold="everything")
    assert time.monotonic() - start < LIMIT_S + 4.0
    assert summary.best is not None  # the first one, which is judged in any case
    assert summary.candidates.timed == 1
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None


@pytest.mark.parametrize(
    ("eager_ms", "compile_ms", "status"), [(2.5, 2.0, "not_settled"), (0.9, 0.8, "no_improvement")]
)
async def test_what_was_not_certified_settles_nothing_unless_it_is_slower(
    search: Search, toy: ModuleType, tmp_path: Path, eager_ms: float, compile_ms: float, status: str
) -> None:
    executor = toy.ToyExecutor(eager_ms=eager_ms, compile_ms=compile_ms)
    archive = Archive.open((await search(executor=executor)).run, tmp_path)
    winner = choose(archive.standings())
    assert winner is not None
    looked = winner.model_copy(update={"effort": "precise"})
    assert status_of(looked, (looked,), archive.record().baselines) == status
    screened = looked.evaluation.model_copy(update={"comparisons": ()})
    seen = looked.model_copy(update={"effort": "screen", "evaluation": screened})
    assert status_of(seen, (seen,), archive.record().baselines) == status
