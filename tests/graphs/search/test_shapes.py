"""A real search that ends with one candidate for a range of sizes, on the CPU."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.gradients.search import with_backward
from kernelwright.graphs.run_view.events import Event, Noted
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options import shapes
from kernelwright.graphs.search.options.shapes import SizedResult, sized_result
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.graphs.search.summary import material_of
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Refusal, TracePolicy, Verdict
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.shapes import ServedShapes

SIZES = "batch=31..33"
MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=-1)


def get_inputs():
    return [torch.randn(32, 512)]
"""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
async def test_what_was_asked_for_is_written_verified_and_kept(
    tmp_path: Path, tiny: SearchProfile, short: Rules
) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(MODULE)
    policy = TracePolicy(shapes="batch=31..33")
    judge = LocalExecutor.create("cpu", tmp_path / "scratch", rules=short)
    events: list[Event] = []
    try:
        summary = await start_search(
            file, policy, "cpu", tiny, home=tmp_path, executor=judge, listener=events.append
        )
        assert isinstance(summary, Summary), summary
        summary = await with_backward(summary, tiny, home=tmp_path, executor=judge, fresh=True)
    finally:
        await judge.aclose()
    assert summary.shapes is not None
    assert summary.training is not None
    assert summary.training.speedup, summary.training.words
    assert summary.shapes.verified is not None, summary.shapes.problem
    assert summary.shapes.verified.variants == 1
    archive = Archive.open(summary.run, tmp_path)
    try:
        known = sized_result(archive)
        material = material_of(archive, forced=True)
    finally:
        archive.close()
    assert known is not None
    assert known.candidate is not None
    assert material.candidate.id == known.candidate.id
    assert material.backward is not None  # kernels for the gradients at the example's sizes
    assert material.evaluation.verdict is Verdict.CORRECT
    assert "verified at batch = 31, 32, 33" in material.evaluation.verification.shapes
    told = [event.words for event in events if isinstance(event, Noted)]
    said = {f"size {at} of 3, batch={size}: correct" for at, size in enumerate((31, 32, 33), 1)}
    assert said <= set(told)
    ends = [check for check in summary.shapes.verified.checks if check.sizes in ((31,), (33,))]
    assert all(check.candidate_ms and check.eager_ms for check in ends)


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_sizes_that_were_cut_off_are_gone_on_with_and_the_search_is_not(
    how: str, toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control()

    async def cut_off(context: SearchContext, asked: str, winner: str) -> SizedResult:
        if how == "killed":
            raise asyncio.CancelledError
        context.control.stop("you interrupted it")
        await asyncio.sleep(60)
        raise AssertionError("nobody ended it")

    async def served(context: SearchContext, asked: str, winner: str) -> SizedResult:
        return SizedResult(winner=winner, served=ServedShapes(asked=asked, problem="no way holds"))

    def agents(around: object) -> object:
        return toy.toy_agents(toy.LOOPS)

    monkeypatch.setattr(shapes, "_served", cut_off)
    searching = start_search(
        Path("toy.py"), TracePolicy(shapes=SIZES), "cpu", toy.PROFILE, home=tmp_path,
        control=control, executor=toy.ToyExecutor(), make_agents=agents,
    )  # fmt: skip
    if how == "killed":
        with pytest.raises(asyncio.CancelledError):
            await searching
    else:
        stopped = await searching
        assert isinstance(stopped, Summary)
        assert stopped.status == "improved"
        assert stopped.shapes is not None
        assert stopped.shapes.interrupted
    (run,) = (tmp_path / "runs").iterdir()
    monkeypatch.setattr(shapes, "_served", served)
    for _ in range(2):
        executor = toy.ToyExecutor()
        found = await resume_search(run.name, home=tmp_path, executor=executor, make_agents=agents)
        assert isinstance(found, Summary)
        assert found.status == "improved"
        assert not executor.asked, "the search itself has its result"
        assert found.shapes is not None
        assert found.shapes.problem == "no way holds"
        assert not found.shapes.interrupted
        monkeypatch.setattr(shapes, "_served", cut_off)  # what is known is not asked for again


@pytest.mark.exhaustive
async def test_a_wish_that_cannot_be_meant_ends_before_anything_is_spent(
    tmp_path: Path, tiny: SearchProfile
) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(MODULE)
    policy = TracePolicy(shapes="batch=64..128")
    refusal = await start_search(file, policy, "cpu", tiny, home=tmp_path)
    assert isinstance(refusal, Refusal)
    assert "the example's batch is 32" in refusal.sentence
