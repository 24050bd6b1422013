"""A baseline that fails beside a candidate costs that comparison, and nothing else."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.worker.comparing import Comparing
from kernelwright.tools.types import Measurement


def comparing(eager: Callable[[object], object], compiled: Callable[[object], object]):
    """A task runtime whose clock calls the baseline once, and what it compared."""
    compared: list[str] = []

    def compare(name, baseline, candidate, **_):
        baseline(())
        candidate(())
        compared.append(name)
        return SimpleNamespace(baseline=name, ci95_high=2.0, candidate_ms=1.0)

    made = {"eager": eager, "compile": compiled}
    task_runtime = SimpleNamespace(
        harness=SimpleNamespace(compare=compare, inspection=None),
        runtime=SimpleNamespace(device="cpu"),
        baselines=SimpleNamespace(get=made.__getitem__),
    )
    request = SimpleNamespace(
        rules=Rules(), compare_to=("eager", "compile"), baselines=None, effort="precise"
    )
    nothing = lambda *_, **__: nullcontext()  # noqa: E731
    steps = SimpleNamespace(say=nothing, begin=nothing, candidate_runs=nothing, seconds=0.1)
    return Comparing(task_runtime, request, steps), compared


def works(_: object) -> object:
    return None


@pytest.mark.parametrize("lacks", [torch.OutOfMemoryError, MemoryError])
def test_a_baseline_without_room_costs_its_own_comparison(lacks):
    def fails(_: object) -> object:
        raise lacks("Tried to allocate 9 GiB. GPU 0 has none")

    found, compared = comparing(fails, works)
    screen = Measurement.model_construct(median_ms=1.0)
    assert [item.baseline for item in found.compare(works, screen)] == ["compile"]
    assert compared == ["compile"]
    assert found.failed == [
        "its time beside eager, which failed: it ran out of memory: Tried to allocate 9 GiB"
    ]


def test_a_candidate_without_room_is_not_excused():
    def fails(_: object) -> object:
        raise MemoryError("none")

    found, _ = comparing(works, works)
    with pytest.raises(MemoryError):
        found.compare(fails, Measurement.model_construct(median_ms=1.0))
    assert found.failed == []
