"""A search says its plan before it lists regions, and does not begin where none has a turn."""

from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.regions.search import by_regions
from kernelwright.graphs.run_view.events import Event, Noted
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.evaluate.messages import OutlineSeen
from kernelwright.tools.types import Task, TracePolicy
from kernelwright.tools.types.run import Summary


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
