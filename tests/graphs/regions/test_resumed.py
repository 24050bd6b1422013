"""A run goes on with its regions as it was begun: with them, without, or where they may pay."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.roles.composed import Compositions
from kernelwright.graphs.regions import search, turns
from kernelwright.graphs.regions.listing import Listed
from kernelwright.graphs.regions.search import by_regions
from kernelwright.graphs.run_view.events import Event, RegionsFound
from kernelwright.graphs.search.context import Prepare, SearchContext
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options.run_terms import keep_composed
from kernelwright.graphs.search.pace import measuring_baselines_s, spent_of
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.messages import OutlineSeen
from kernelwright.tools.types import Task, TracePolicy
from kernelwright.tools.types.run import Summary


class Prepares:
    """Takes note of what it is called for."""

    choice = "auto"

    def __init__(self) -> None:
        self.runs: list[str] = []

    async def __call__(self, context: SearchContext, round: int, *, now: bool = False) -> None:
        self.runs.append(context.archive.id)


async def stopped(toy: ModuleType, home: Path, prepare: Prepare | None) -> Summary:
    """A search that a person ended before its first plan."""
    control = Control()

    def ends_it(event: object) -> None:
        if getattr(event, "kind", "") == "baselines_measured":
            control.stop()

    first = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=home, listener=ends_it,
        control=control, executor=toy.ToyExecutor(), prepare=prepare,
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )  # fmt: skip
    assert isinstance(first, Summary)
    return first


@pytest.mark.parametrize("begun_with", [True, False])
async def test_a_resume_searches_regions_only_where_the_run_was_begun_so(
    toy: ModuleType, tmp_path: Path, begun_with: bool
) -> None:
    prepare = Prepares()
    first = await stopped(toy, tmp_path, prepare if begun_with else None)
    assert first.status == "stopped"
    assert not prepare.runs  # it was ended before its turn
    again = await resume_search(
        first.run, home=tmp_path, executor=toy.ToyExecutor(), prepare=prepare,
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )  # fmt: skip
    assert isinstance(again, Summary)
    assert again.best is not None
    assert bool(prepare.runs) is begun_with


@pytest.mark.parametrize("choice", ["on", "auto"])
async def test_a_resume_goes_on_with_the_choice_that_the_run_was_begun_with(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    asked_for: list[bool] = []

    async def searched(context: SearchContext, round: int, *, asked: bool) -> None:
        asked_for.append(asked)
        keep_composed(context.archive, Compositions())

    monkeypatch.setattr(search, "search_regions", searched)
    monkeypatch.setattr(search, "may_pay", lambda context: True)
    monkeypatch.setattr(search, "_lead", lambda context: 0.9)
    first = await stopped(toy, tmp_path, by_regions(choice))  # type: ignore[arg-type]
    assert not asked_for
    await resume_search(
        first.run,
        home=tmp_path,
        executor=toy.ToyExecutor(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
        prepare=by_regions("auto"),
    )
    assert asked_for == [choice == "on"]


async def test_what_was_listed_when_a_run_was_cut_off_is_shown_and_counted_by_the_next_session(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Lists(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def outline(self, task: Task) -> OutlineSeen:
            asked.append(task.name)
            await asyncio.sleep(0.05)
            return OutlineSeen(failure="the forward cannot be exported")

    def cut_off(context: SearchContext, found: Listed) -> None:
        control.stop()
        raise asyncio.CancelledError

    def agents(around: object) -> object:
        return toy.toy_agents(toy.LOOPS)

    control, told = Control(), list[Event]()
    with monkeypatch.context() as patched:
        patched.setattr(search, "_show", cut_off)
        first = await start_search(
            Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE.limited(seconds=300), home=tmp_path,
            control=control, executor=Lists(), make_agents=agents, prepare=by_regions("on"),
        )  # fmt: skip
    assert isinstance(first, Summary)
    again = await resume_search(
        first.run, home=tmp_path, executor=Lists(), make_agents=agents, listener=told.append,
        prepare=by_regions("on"),
    )  # fmt: skip
    assert isinstance(again, Summary)
    assert again.best is not None
    assert len(asked) == 1
    (found,) = [event for event in told if isinstance(event, RegionsFound)]
    assert found.regions == ()
    assert found.seconds >= 0.05
    archive = Archive.open(first.run, tmp_path)
    try:
        assert measuring_baselines_s(archive) >= found.seconds
        assert not any(key.startswith("regions:listed") for key, _ in archive.decisions())
    finally:
        archive.close()


@pytest.mark.parametrize("slice_s", [5.0, 1e4])
async def test_a_turn_that_goes_on_has_no_more_than_the_new_plan_gives_it(
    toy: ModuleType, tmp_path: Path, slice_s: float
) -> None:
    control = Control()

    def ends_it(event: object) -> None:
        if getattr(event, "kind", "") == "baselines_measured":
            control.stop()

    first = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path, listener=ends_it,
        control=control, executor=toy.ToyExecutor(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )  # fmt: skip
    assert isinstance(first, Summary)
    turns._shorten(first.run, tmp_path, slice_s)
    archive = Archive.open(first.run, tmp_path)
    try:
        kept, spent_s = archive.record().profile, spent_of(archive).searched_s
    finally:
        archive.close()
    assert kept.seconds == pytest.approx(min(toy.PROFILE.seconds, spent_s + slice_s))
    assert kept.seconds_hold == toy.PROFILE.seconds_hold
