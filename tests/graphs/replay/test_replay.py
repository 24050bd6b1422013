"""Recorded runs, run again without model, compiler or device."""

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.coder.model import CODER
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.replay import Replay, replay
from kernelwright.graphs.run_view.events import Event
from kernelwright.graphs.search.context import Circumstances
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.types import Candidate, TracePolicy, Verdict
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.shapes import ServedShapes
from kernelwright.tools.types.training import TrainingSummary
from kernelwright.tools.types.value import AwaitingError

Search = Callable[..., Awaitable[Summary]]


@pytest.fixture
def replayed(toy: ModuleType, tmp_path: Path) -> Callable[..., Awaitable[Replay]]:
    """Replay a toy search; only the toy's agents think."""

    async def run(name: str | Path) -> Replay:
        return await replay(
            name, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
        )

    return run


Replayed = Callable[..., Awaitable[Replay]]


def change(home: Path, run: str, statement: str, *values: object) -> None:
    """Alter a record, as a fault of ours in the past would have."""
    with sqlite3.connect(home / "runs" / run / "run.db") as database:
        database.execute(statement, values)


async def test_a_finished_run_replays_to_the_same_decisions(
    search: Search, replayed: Replayed, toy: ModuleType
) -> None:
    def sometimes_wrong(candidate: Candidate, effort: str) -> Verdict | None:
        return Verdict.WRONG_RESULT if "rows=tiled" in candidate.strategies else None

    summary = await search(executor=toy.ToyExecutor(wrong=sometimes_wrong), seed=3)
    told = await replayed(summary.run)
    assert told.difference is None
    assert told.ended == ""
    assert told.same > 40


async def test_searches_beside_a_search_are_not_its_decisions(
    search: Search, replayed: Replayed, tmp_path: Path
) -> None:
    summary = await search()
    archive = Archive.open(summary.run, tmp_path)
    region = RegionShown(name="R1", words="add, layer_norm", places=2, share=0.2, before_ms=4.0)
    beside = {
        "regions": (region,),
        "training": TrainingSummary(run="backward-1", forward_ms=1.0, backward_ms=2.0),
        "shapes": ServedShapes(asked="batch=1..8", problem="no kernel holds for all"),
    }
    archive.record_summary(summary.model_copy(update=beside), "finished")
    archive.close()
    assert (await replayed(summary.run)).difference is None


async def test_the_clock_decides_in_a_replay_what_it_decided_then(
    search: Search, replayed: Replayed, toy: ModuleType
) -> None:
    summary = await search(rounds=9, seconds=1.0, executor=toy.ToyExecutor(pause_s=0.1))
    assert summary.stopped_because == "the budget of 1 seconds is used up"
    told = await replayed(summary.run)
    assert told.difference is None


async def test_runs_that_were_stopped_and_resumed_replay(
    search: Search, resume: Search, replayed: Replayed
) -> None:
    control = Control()

    def listener(event: Event) -> None:
        if event.kind == "best_improved":
            control.stop()

    stopped = await search(control=control, listener=listener)
    told = await replayed(stopped.run)
    assert told.difference is None
    assert told.ended  # as far as it came
    await resume(stopped.run)
    again = await replayed(stopped.run)
    assert again.difference is None
    assert again.ended == ""
    assert again.same > told.same


@pytest.mark.exhaustive
async def test_a_run_that_was_cancelled_in_the_middle_of_a_step_replays(
    search: Search, resume: Search, replayed: Replayed, toy: ModuleType, tmp_path: Path
) -> None:
    hold = toy.Hold(at=10)
    task = asyncio.ensure_future(search(executor=toy.ToyExecutor(hold=hold)))
    while not hold.reached.is_set():  # noqa: ASYNC110 - a thread's event
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (folder,) = (tmp_path / "runs").iterdir()
    assert (await replayed(folder.name)).difference is None
    await resume(folder.name)
    told = await replayed(folder.name)
    assert told.difference is None
    assert told.ended == ""


@pytest.mark.exhaustive
async def test_runs_that_went_on_after_their_end_replay(
    search: Search, resume: Search, replayed: Replayed
) -> None:
    first = await search(rounds=1)
    more = await resume(first.run, rounds=3)
    assert more.rounds > 1
    told = await replayed(first.run)
    assert told.difference is None
    assert told.ended == ""


@pytest.mark.exhaustive
async def test_runs_that_waited_replay(
    search: Search, resume: Search, replayed: Replayed, toy: ModuleType
) -> None:
    def far(candidate: Candidate, effort: str) -> None:
        if effort == "precise":
            raise AwaitingError("the other host")

    waiting = await search(executor=toy.ToyExecutor(wrong=far))
    assert waiting.status == "waiting"
    assert (await replayed(waiting.run)).difference is None
    await resume(waiting.run)
    told = await replayed(waiting.run)
    assert told.difference is None
    assert told.ended == ""


class SlowerFirst:
    """A coder of which the first one asked is the last one done, as servers have it."""

    def __init__(self, inner: Coder) -> None:
        self._inner = inner

    async def write(self, request: CoderRequest) -> CoderAnswer:
        answer = await self._inner.write(request)
        await asyncio.sleep(0.3 if request.idea.id.endswith("i1") else 0.0)
        return answer

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        return await self._inner.repair(request, failure)


@pytest.mark.exhaustive
async def test_writers_take_the_turns_that_they_took(
    replayed: Replayed, toy: ModuleType, tmp_path: Path
) -> None:
    def agents(around: Circumstances) -> AgentSet:
        of: AgentSet = toy.toy_agents(toy.LOOPS)
        return of.replaced(CODER, SlowerFirst(of.coder))

    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE,
        home=tmp_path, executor=toy.ToyExecutor(), make_agents=agents,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    archive = Archive.open(summary.run, tmp_path)
    assert archive.candidates()[0].candidate.idea == "r1i2"
    archive.close()
    told = await replayed(summary.run)
    assert told.difference is None


@pytest.mark.exhaustive
async def test_a_copied_folder_replays_anywhere(
    search: Search, replayed: Replayed, tmp_path: Path
) -> None:
    summary = await search()
    copy = tmp_path / "elsewhere" / "a-report"
    shutil.copytree(tmp_path / "runs" / summary.run, copy)
    shutil.rmtree(tmp_path / "runs")
    told = await replayed(copy)
    assert told.difference is None
    assert told.same > 40


async def test_a_verdict_that_was_another_is_a_difference(
    search: Search, replayed: Replayed, tmp_path: Path
) -> None:
    summary = await search()
    assert summary.best is not None
    archive = Archive.open(summary.run, tmp_path)
    judged = archive.evaluation(summary.best.candidate, "screen")
    archive.close()
    assert judged is not None
    assert judged.screen is not None
    slow = judged.screen.model_copy(update={"median_ms": 99.0})
    other = judged.model_copy(update={"screen": slow, "comparisons": ()}).model_dump_json()
    change(
        tmp_path, summary.run,
        "update evaluations set json = ? where candidate = ? and effort = 'screen'",
        other, summary.best.candidate,
    )  # fmt: skip
    told = await replayed(summary.run)
    assert told.difference is not None
    assert told.same > 0


async def test_a_decision_of_ours_that_would_be_another_now_is_the_first_difference(
    search: Search, replayed: Replayed, tmp_path: Path
) -> None:
    summary = await search()
    change(
        tmp_path, summary.run,
        """update analyses set json = json_insert(json, '$.prefer[#]', 'rows=other') """
        "where round = 1",
    )  # fmt: skip
    told = await replayed(summary.run)
    assert told.difference is not None
    assert told.difference.key == "analysis:1"
    assert "rows=other" in told.difference.recorded
    assert "rows=other" not in told.difference.replayed


async def test_words_and_profiles_that_would_be_others_now_are_told_apart(
    search: Search, replayed: Replayed, tmp_path: Path
) -> None:
    summary = await search()
    change(
        tmp_path, summary.run,
        "update analyses set json = replace(json, 'rather than', 'much rather than')",
    )  # fmt: skip
    change(
        tmp_path, summary.run,
        "update events set payload = replace(payload, 'achieved_bandwidth', 'old_bandwidth') "
        "where kind = 'profiled'",
    )  # fmt: skip
    told = await replayed(summary.run)
    assert told.difference is None
    differ = {item.key.partition(":")[0] for item in told.readings}
    assert differ <= {"words", "profile"}
    assert "words" in differ
    assert all("much rather" not in item.replayed for item in told.readings)


async def test_a_run_without_decisions_is_refused_in_one_sentence(
    search: Search, replayed: Replayed, tmp_path: Path
) -> None:
    summary = await search()
    change(tmp_path, summary.run, "delete from decisions")
    with pytest.raises(RunError, match="recorded before"):
        await replayed(summary.run)
