"""A search says its plan before it lists regions, and does not begin where none has a turn."""

from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.regions import search
from kernelwright.graphs.regions.listing import Listed
from kernelwright.graphs.regions.results import RegionResult
from kernelwright.graphs.regions.search import RegionsChoice, by_regions
from kernelwright.graphs.regions.turns import Turns
from kernelwright.graphs.run_view.events import Event, Noted
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.evaluate.messages import OutlineSeen
from kernelwright.tools.types import Task, TracePolicy
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
