"""A real search that ends with one candidate for a range of sizes, on the CPU."""

from pathlib import Path

import pytest

from kernelwright.graphs.search.options.shapes import sized_result
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.search.summary import material_of
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Refusal, TracePolicy, Verdict
from kernelwright.tools.types.run import Summary

MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=-1)


def get_inputs():
    return [torch.randn(32, 512)]
"""
TINY = SearchProfile(
    name="tiny", rounds=1, ideas_per_round=1, candidates_per_idea=1, repairs=0, patience=1,
    seconds=600, tuning_trials=0, finalists=1, stop_at_floor_fraction=1.0, minimum_gain=1.0,
)  # fmt: skip


# What is claimed of times elsewhere takes seconds; here it is that something was timed.
SHORT = Rules(precise_s=0.05, certify_s=0.1, mode_s=0.05, latency_s=0.05, settle_max_s=0.1)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
async def test_what_was_asked_for_is_written_verified_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(MODULE)
    policy = TracePolicy(shapes="batch=31..33")
    judge = LocalExecutor.create("cpu", tmp_path / "scratch", rules=SHORT)
    try:
        summary = await start_search(file, policy, "cpu", TINY, home=tmp_path, executor=judge)
    finally:
        await judge.aclose()
    assert isinstance(summary, Summary), summary
    assert summary.shapes is not None
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
    assert material.evaluation.verdict is Verdict.CORRECT
    assert "verified at batch = 31, 32, 33" in material.evaluation.verification.shapes
    ends = [check for check in summary.shapes.verified.checks if check.sizes in ((31,), (33,))]
    assert all(check.candidate_ms and check.eager_ms for check in ends)


@pytest.mark.exhaustive
async def test_a_wish_that_cannot_be_meant_ends_before_anything_is_spent(tmp_path: Path) -> None:
    file = tmp_path / "tiny.py"
    file.write_text(MODULE)
    policy = TracePolicy(shapes="batch=64..128")
    refusal = await start_search(file, policy, "cpu", TINY, home=tmp_path)
    assert isinstance(refusal, Refusal)
    assert "the example's batch is 32" in refusal.sentence
