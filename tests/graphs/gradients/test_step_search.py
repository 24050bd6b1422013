"""A real search of a step's own forward and its backward, on the CPU, and their export."""

from pathlib import Path

import pytest

from kernelwright.graphs.gradients.search import with_backward
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.search.summary import material_of
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.local.baselines import KnownBaselines
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.export import export_folder
from kernelwright.tools.types import Baseline, Task, TracePolicy
from kernelwright.tools.types.run import Summary

MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 64)

    def forward(self, x):
        return torch.nn.functional.gelu(self.inner(x))


def make_model():
    return Model()


def get_inputs():
    return [torch.randn(48, 32)]
"""
NORMED = MODULE.replace(
    "self.inner = nn.Linear(32, 64)",
    "self.inner = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64))",
)
UPDATED = tuple(
    f"inner.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize(
    ("module", "kept", "updates"),
    [(MODULE, 1, ()), (NORMED, 4, UPDATED)],
    ids=["a-layer", "a-batch-norm-in-training"],
)
async def test_what_a_backward_is_kept_is_searched_and_exported_with_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny: SearchProfile,
    short: Rules,
    module: str,
    kept: int,
    updates: tuple[str, ...],
) -> None:
    made: list[tuple[str, str]] = []
    measure = KnownBaselines._measure

    async def noted(known: KnownBaselines, task: Task, name: str) -> Baseline:
        made.append((task.name, name))
        return await measure(known, task, name)

    monkeypatch.setattr(KnownBaselines, "_measure", noted)
    file = tmp_path / "whole.py"
    file.write_text(module)
    policy = TracePolicy(entry="make_model", makes=True)
    judge = LocalExecutor.create("cpu", tmp_path / "scratch", rules=short)
    try:
        summary = await start_search(file, policy, "cpu", tiny, home=tmp_path, executor=judge)
        assert isinstance(summary, Summary), summary
        made.clear()
        summary = await with_backward(summary, tiny, home=tmp_path, executor=judge, fresh=True)
    finally:
        await judge.aclose()
    assert made, "eager was timed for both directions"
    assert {name for _, name in made} == {"eager"}, made
    assert judge.rules.compile_ahead is short.compile_ahead
    assert not judge._baselines.eager_alone
    assert summary.training is not None
    assert summary.training.speedup, summary.training.words
    archive = Archive.open(summary.run, tmp_path)
    try:
        material = material_of(archive, forced=True)
    finally:
        archive.close()
    assert material.backward is not None
    assert material.backward.forward is not None
    assert material.backward.found.kept == kept
    assert set(material.backward.found.updates) == set(updates)
    assert {item.kind for item in material.backward.found.gives} == {"weight"}
    folder = export_folder(material, tmp_path / "faster")
    assert (folder / "forward" / "module.py").is_file()
    assert (folder / "backward" / "module.py").is_file()
