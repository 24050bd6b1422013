"""Modules exported by other processes are what this process would have made of them."""

import asyncio

import pytest

from kernelwright.tools.learning.writing.drafts import Drafting, drafts
from kernelwright.tools.learning.writing.families import Module, modules

DRAWN = modules(3, 0, small=True)
BAD = Module(family="none", name="none", source="import torch\n", held_out=False)


@pytest.mark.slow
async def test_processes_draft_the_same_in_order() -> None:
    asked = Drafting(modules=(*DRAWN, BAD), language="cuda", count=2, seed=0)
    alone = [draft async for draft in drafts(asked)]
    beside = [draft async for draft in drafts(asked, processes=2)]
    assert [draft.problem.name for draft in beside] == [module.name for module in DRAWN]
    assert [draft.answers for draft in beside] == [draft.answers for draft in alone]
    assert [draft.problem.key for draft in beside] == [draft.problem.key for draft in alone]
    assert all(len(draft.answers) == 2 for draft in beside)


async def test_without_answers_only_problems_are_made() -> None:
    asked = Drafting(modules=tuple(DRAWN[:1]), language="cuda", count=0, seed=0)
    (draft,) = [draft async for draft in drafts(asked)]
    assert draft.answers == ()


@pytest.mark.slow
async def test_a_process_that_dies_is_told_and_none_is_left() -> None:
    broken = DRAWN[0].model_copy(update={"source": "import os\nos._exit(3)\n"})
    asked = Drafting(modules=(broken,), language="cuda", count=1, seed=0)
    with pytest.raises(RuntimeError, match="ended with 3"):
        async with asyncio.timeout(120):
            _ = [draft async for draft in drafts(asked, processes=1)]
