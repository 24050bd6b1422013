"""A run goes on with its regions as it was begun: with them, without, or where they may pay."""

from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.regions import search
from kernelwright.graphs.regions.search import by_regions
from kernelwright.graphs.search.context import Control, SearchContext
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.types import TracePolicy
from kernelwright.tools.types.run import Summary


class Prepares:
    """Takes note of what it is called for."""

    choice = "auto"

    def __init__(self) -> None:
        self.runs: list[str] = []

    async def __call__(self, context: SearchContext) -> None:
        self.runs.append(context.archive.id)


@pytest.mark.parametrize("begun_with", [True, False])
async def test_a_resume_searches_regions_only_where_the_run_was_begun_so(
    toy: ModuleType, tmp_path: Path, begun_with: bool
) -> None:
    prepare = Prepares()
    control = Control()

    def ends_it(event: object) -> None:
        if getattr(event, "kind", "") == "baselines_measured":
            control.stop()

    def agents(around: object) -> object:
        return toy.toy_agents(toy.LOOPS)

    first = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path, listener=ends_it,
        control=control, executor=toy.ToyExecutor(), make_agents=agents,
        prepare=prepare if begun_with else None,
    )  # fmt: skip
    assert isinstance(first, Summary)
    assert first.status == "stopped"
    assert not prepare.runs  # it was ended before its turn
    again = await resume_search(
        first.run, home=tmp_path, executor=toy.ToyExecutor(), make_agents=agents, prepare=prepare
    )
    assert isinstance(again, Summary)
    assert again.best is not None
    assert bool(prepare.runs) is begun_with


@pytest.mark.parametrize("choice", ["on", "auto"])
async def test_a_resume_goes_on_with_the_choice_that_the_run_was_begun_with(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    asked_for: list[bool] = []

    async def searched(context: SearchContext, *, asked: bool) -> None:
        asked_for.append(asked)

    monkeypatch.setattr(search, "search_regions", searched)
    monkeypatch.setattr(search, "may_pay", lambda context: True)
    control = Control()

    def ends_it(event: object) -> None:
        if getattr(event, "kind", "") == "baselines_measured":
            control.stop()

    def agents(around: object) -> object:
        return toy.toy_agents(toy.LOOPS)

    first = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path, listener=ends_it,
        control=control, executor=toy.ToyExecutor(), make_agents=agents,
        prepare=by_regions(choice),  # type: ignore[arg-type]
    )  # fmt: skip
    assert isinstance(first, Summary)
    assert not asked_for
    await resume_search(
        first.run,
        home=tmp_path,
        executor=toy.ToyExecutor(),
        make_agents=agents,
        prepare=by_regions("auto"),
    )
    assert asked_for == [choice == "on"]
