"""A baseline's own times; eager's comparison with itself is part of them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import Meter
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.baselines import BaselineCalls
from kernelwright.tools.evaluate.worker.comparing import timed_baseline
from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
from kernelwright.tools.types import Task

RULES = Rules(calibrate_s=0.0, precise_s=0.0, pairs_min=4, pairs_max=8)


@pytest.fixture(scope="module")
def task_runtime(relu: Task, cpu: Hardware) -> TaskRuntime:
    return TaskRuntime(relu, cpu, RULES, 0)


def test_what_was_timed_beside_itself_counts_as_timed(
    task_runtime: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, pairs = task_runtime.harness.compare, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        pairs.append(compare(*args, **kwargs))
        return pairs[-1]

    monkeypatch.setattr(task_runtime.harness, "compare", watched)
    found = timed_baseline(task_runtime, "eager", Meter()).measurement
    assert found is not None
    (again,) = pairs
    both = (*again.baseline_samples_ms, *again.candidate_samples_ms)
    assert len(both) >= 2 * RULES.pairs_min
    assert found.samples_ms[: len(both)] == both
    assert found.p10_ms <= found.median_ms <= found.p90_ms
    assert any("A/A" in note for note in found.conditions.notes)


def test_another_baseline_is_timed_on_its_own(task_runtime: TaskRuntime) -> None:
    calls = SimpleNamespace(
        get=lambda name: lambda arguments: arguments, setup_s={"compile": 2.0}, fastest={}
    )
    task_runtime.__dict__["baselines"] = cast(BaselineCalls, calls)
    found = timed_baseline(task_runtime, "compile", Meter())
    assert found.measurement is not None
    assert len(found.measurement.samples_ms) == RULES.pairs_min
    assert (found.noise, found.setup_s) == (None, 2.0)
