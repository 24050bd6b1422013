"""When regions have their turn: planned and said first, and behind the model as one unasked."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.planner.planner import PlannerInput, Proposal
from kernelwright.agents.roles.composed import Composition, Compositions
from kernelwright.graphs.regions import search
from kernelwright.graphs.regions.listing import Listed
from kernelwright.graphs.regions.results import RegionResult
from kernelwright.graphs.regions.search import RegionsChoice, by_regions
from kernelwright.graphs.regions.turns import Turns
from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.events import Event, IdeasProposed, Noted
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options.run_terms import keep_composed
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.evaluate.messages import OutlineSeen
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Idea, Task, TracePolicy
from kernelwright.tools.types.outline import ModelRegions, Outline, Region, RegionClass
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.task import Part as TaskPart


@pytest.mark.parametrize(("seconds", "listed"), [(30.0, False), (300.0, True)])
async def test_regions_that_were_asked_for_are_listed_only_where_one_can_have_a_turn(
    toy: ModuleType, tmp_path: Path, seconds: float, listed: bool
) -> None:
    asked: list[str] = []

    class Lists(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def outline(self, task: Task) -> OutlineSeen:
            asked.append(task.name)
            return OutlineSeen(failure="the forward cannot be exported")

    told: list[Event] = []
    profile = toy.PROFILE.limited(seconds=seconds)
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=Lists(),
        listener=told.append, make_agents=lambda around: toy.toy_agents(toy.LOOPS),
        prepare=by_regions("on"),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert summary.best is not None  # of the model as one
    words = [event.words for event in told if isinstance(event, Noted)]
    assert bool(asked) is listed
    if listed:
        assert any(item.startswith("plan of 5 min 0 s: about 5.0 s to list") for item in words)
        assert "the model is searched as one: the forward cannot be exported" in words
    else:
        (why,) = [item for item in words if item.startswith("the model is searched as one")]
        assert "30 s are too few to search its regions one by one" in why
        assert "about 1 min 13 s would do" in why


@pytest.mark.parametrize("choice", ["on", "auto"])
async def test_a_model_in_parts_is_listed_and_has_a_turn_however_few_the_seconds(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: RegionsChoice
) -> None:
    region = Region(nodes=("n",), inputs=("x",), weights=(), outputs=("n",))
    classes = tuple(
        RegionClass(name=name, key=name, words="", regions=(region,), time_ms=share, share=share,
                    floor_ms=0.0)
        for name, share in (("R1", 0.5), ("R2", 0.3))
    )  # fmt: skip
    searched: list[tuple[str, float]] = []

    async def lists(executor: object, task: Task) -> Listed:
        outline = Outline.model_construct(graph=task.graph, parts=(), seen=(), whole_ms=1.0)
        regions = ModelRegions(classes=classes, left=(), whole_ms=1.0)
        return Listed.model_construct(outline=outline, regions=regions, failure="", seconds=0.0)

    async def searching(self: Turns, item: RegionClass, slice_s: float) -> RegionResult:
        searched.append((item.name, slice_s))
        return RegionResult(why="nothing was correct")

    monkeypatch.setattr(search, "listed", lists)
    monkeypatch.setattr(Turns, "_search", searching)
    part = TaskPart(path="inner", kind="Inner", inputs=(), calls=1)
    told: list[Event] = []
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE.limited(seconds=20.0), home=tmp_path,
        executor=toy.ToyExecutor(), listener=told.append,
        make_agents=lambda around: toy.toy_agents(toy.LOOPS), prepare=by_regions(choice),
        task=toy.TASK.model_copy(update={"parts": (part,)}),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert [name for name, _ in searched] == ["R1"]
    words = [event.words for event in told if isinstance(event, Noted)]
    assert any(item.startswith("20 s are too few") and "has what time there is" in item
               for item in words)  # fmt: skip
    assert "no region became faster than eager: nothing else is searched" in words


@pytest.mark.parametrize(("lead", "round"), [(0.95, 2), (1.3, None)])
async def test_unasked_regions_have_their_turn_where_the_model_as_one_is_not_clearly_faster(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lead: float, round: int | None
) -> None:
    draft = toy.ToyRepertoire(toy.LOOPS).draft({"rows": "once", "tail": "flat"})
    made = new_candidate("cpp", draft.kernel, draft.plan, idea="r1i1", strategies=draft.strategies)
    rounds: list[int] = []

    async def searched(context: SearchContext, round: int, *, asked: bool) -> None:
        assert not asked
        rounds.append(round)
        idea = Idea(id=f"r{round}i1", title="regions put together: R1", mechanism="", reason="",
                    category="fusion", metric="", round=round)  # fmt: skip
        given = Compositions(items=(Composition(idea=idea, candidate=made),), round=round)
        keep_composed(context.archive, given)

    monkeypatch.setattr(search, "search_regions", searched)
    monkeypatch.setattr(search, "may_pay", lambda context: True)
    monkeypatch.setattr(search, "_lead", lambda context: lead)
    told: list[Event] = []
    profile = toy.PROFILE.model_copy(update={"patience": 1, "minimum_rounds": 1})
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=toy.ToyExecutor(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS), listener=told.append,
        prepare=by_regions("auto"),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert rounds == ([] if round is None else [round])
    ideas = [idea.title for event in told if isinstance(event, IdeasProposed)
             for idea in event.ideas]  # fmt: skip
    assert ("regions put together: R1" in ideas) is (round is not None)
    assert ideas[0] != "regions put together: R1"
    words = [event.words for event in told if isinstance(event, Noted)]
    assert any(item.startswith("the model is searched as one, and region by") for item in words)
    why = "the model is searched as one: that is 1.30 times as fast"
    assert any(item.startswith(why) for item in words) is (round is None)
    again = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert again.difference is None


async def test_small_modules_are_told_nothing_of_regions(toy: ModuleType, tmp_path: Path) -> None:
    told: list[Event] = []
    await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path,
        executor=toy.ToyExecutor(), make_agents=lambda around: toy.toy_agents(toy.LOOPS),
        listener=told.append, prepare=by_regions("auto"),
    )  # fmt: skip
    assert not [event for event in told if isinstance(event, Noted) and "region" in event.words]


async def test_a_run_that_ended_in_its_regions_replays(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control()

    async def searched(context: SearchContext, round: int, *, asked: bool) -> None:
        control.stop()
        await asyncio.sleep(10)

    monkeypatch.setattr(search, "search_regions", searched)
    monkeypatch.setattr(search, "may_pay", lambda context: True)
    monkeypatch.setattr(search, "_lead", lambda context: 0.9)

    def agents(around: object) -> object:
        return toy.toy_agents({"rows": {"twice": ("streams", 2.0, 2.4)},
                               "tail": {"flat": ("streams", 0.2, 0.3)}})  # fmt: skip

    # Nothing is left to improve in the first round, which ends no search that waits for regions.
    profile = toy.PROFILE.model_copy(
        update={"patience": 1, "minimum_rounds": 1, "tuning_trials": 0, "minimum_gain": 9.0}
    )
    ended = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=toy.ToyExecutor(),
        make_agents=agents, control=control, prepare=by_regions("auto"),
    )  # fmt: skip
    assert isinstance(ended, Summary)
    assert ended.rounds == 1
    again = await replay(ended.run, home=tmp_path, make_agents=agents)
    assert again.difference is None


async def test_regions_have_their_turn_at_once_where_the_model_as_one_has_no_idea(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    async def searched(context: SearchContext, round: int, *, asked: bool) -> None:
        rounds.append(round)
        keep_composed(context.archive, Compositions(round=round))

    class Nothing:
        async def plan(self, planner_input: PlannerInput) -> Proposal:
            return Proposal(ideas=(), reasoning="")

    monkeypatch.setattr(search, "search_regions", searched)
    monkeypatch.setattr(search, "may_pay", lambda context: True)
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path,
        executor=toy.ToyExecutor(), prepare=by_regions("auto"),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS).replaced(PLANNER, Nothing()),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert rounds == [1]
