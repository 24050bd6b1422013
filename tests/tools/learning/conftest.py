"""A traced module of our own, and an executor that finds what the code of an answer says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.learning.data.records import Problem
from kernelwright.tools.learning.writing.drafts import problem_of
from kernelwright.tools.learning.writing.families import Module
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Conditions,
    Effort,
    Evaluation,
    Isolation,
    Measurement,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
    Verification,
    WallKind,
)

CONDITIONS = Conditions(device="toy", l2_flushed=False, input_sets=1)
SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return torch.relu(x) * self.scale


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


def measured(ms: float) -> Measurement:
    return Measurement(median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=CONDITIONS)


class ReadingExecutor(Executor):
    """Reads `// ms=2` and `// wrong` in a kernel: eager takes 4 ms."""

    isolation = Isolation(kind=WallKind.NONE, words="toy")

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def hardware(self) -> Hardware:
        return hardware_profile("cpu")

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        return Refusal(sentence="nothing is traced here")

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        return Baselines(items=(Baseline(name="eager", measurement=measured(4.0)),))

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        self.asked.append(candidate.id)
        time = re.search(r"// ms=([\d.]+)", candidate.kernel)
        verdict = Verdict.WRONG_RESULT if time is None else Verdict.CORRECT
        if "// cheat" in candidate.kernel:
            verdict = Verdict.CHEATING
        return Evaluation(
            candidate=candidate.id,
            verification=Verification(verdict=verdict, reason="" if time else "off by 2"),
            screen=measured(float(time[1])) if time else None,
        )

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        return Profile(candidate=candidate.id)

    async def aclose(self) -> None:
        return


@pytest.fixture(scope="session")
def problem() -> Problem:
    """A scaled ReLU."""
    found = problem_of(Module(family="relu", name="scaled", source=SOURCE, held_out=False))
    assert found is not None
    return found


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """What tests of this folder share."""
    return SimpleNamespace(measured=measured, source=SOURCE, save_tiny=_beside("tiny").save_tiny)


def _beside(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reading() -> ReadingExecutor:
    """An executor without a device."""
    return ReadingExecutor()
