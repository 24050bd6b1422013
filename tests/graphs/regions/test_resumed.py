"""A run that was begun without regions goes on without them."""

from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.search.context import Control, SearchContext
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.types import TracePolicy
from kernelwright.tools.types.run import Summary


@pytest.mark.parametrize("begun_with", [True, False])
async def test_a_resume_searches_regions_only_where_the_run_was_begun_so(
    toy: ModuleType, tmp_path: Path, begun_with: bool
) -> None:
    prepared: list[str] = []

    async def prepare(context: SearchContext) -> None:
        prepared.append(context.archive.id)

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
    assert not prepared  # it was ended before its turn
    again = await resume_search(
        first.run, home=tmp_path, executor=toy.ToyExecutor(), make_agents=agents, prepare=prepare
    )
    assert isinstance(again, Summary)
    assert again.best is not None
    assert bool(prepared) is begun_with
