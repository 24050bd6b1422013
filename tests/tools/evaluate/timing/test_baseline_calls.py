"""A baseline that cannot be made is a fact about the module, not about what lay ready for it."""

import os
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing import baselines
from kernelwright.tools.evaluate.timing.baselines import BaselineCalls, BaselineFailedError
from kernelwright.tools.evaluate.worker.beside import beside_fastest
from kernelwright.tools.types import Comparison, Conditions, Measurement

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture
def calls() -> BaselineCalls:
    harness = SimpleNamespace(sets=[()], on_gpu=False)
    return BaselineCalls(cast(Any, None), cast(Any, harness), nullcontext)


def made_in(folders: list[str], broken: set[str]) -> Any:
    """A compiled forward that fails where what it finds was made elsewhere."""

    def compiled(runtime: object, name: str) -> Any:
        def call(arguments: object) -> str:
            folders.append(os.environ[CACHE])
            if not broken or folders[-1] in broken:
                raise OSError(30, "Read-only file system")
            return name

        return call

    return compiled


def test_what_lay_ready_and_does_not_run_is_compiled_again_elsewhere(
    calls: BaselineCalls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken, folders = str(tmp_path / "inductor"), list[str]()
    monkeypatch.setenv(CACHE, taken)
    monkeypatch.setattr(baselines, "compiled", made_in(folders, {taken}))
    assert calls.get("compile")(()) == "compile"
    assert folders[0] == taken
    assert folders[1] != taken
    assert Path(folders[1]).is_dir()


def test_eager_is_timed_without_autograds_records(calls: BaselineCalls) -> None:
    module = torch.nn.Linear(3, 2)
    calls._runtime = cast(Any, SimpleNamespace(reference=SimpleNamespace(module=module)))
    calls._harness = cast(Any, SimpleNamespace(sets=[(torch.ones(4, 3),)]))
    y = calls.get("eager")((torch.ones(4, 3),))
    assert isinstance(y, torch.Tensor)
    assert not y.requires_grad
    assert torch.is_grad_enabled()


def test_what_cannot_be_compiled_at_all_says_why_once(
    calls: BaselineCalls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = list[str]()
    monkeypatch.setenv(CACHE, str(tmp_path / "inductor"))
    monkeypatch.setattr(baselines, "compiled", made_in(folders, set()))
    for _ in range(2):
        with pytest.raises(BaselineFailedError, match="Read-only file system"):
            calls.get("compile")
    assert len(folders) == 2


class Lottery:
    """A harness on which each making of a baseline takes the next of these times."""

    on_gpu = True
    sets = ((),)

    def __init__(self, *taken_ms: float) -> None:
        self._taken = iter(taken_ms)
        self.asked = 0

    def measure(self, call: object, **limits: object) -> Measurement:
        self.asked += 1
        ms = next(self._taken)
        return Measurement(
            median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,),
            conditions=Conditions(device="gpu", l2_flushed=True, input_sets=1),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("taken_ms", "asked"),
    [
        ((0.105, 0.035, 0.0785, 0.0351, 0.2), 4),  # as fast as the fastest again: enough
        ((0.035, 0.035, 0.035), 3),
        ((0.1, 0.05, 0.08, 0.07, 0.09), 5),  # never again: as many as the rules say
    ],
)
def test_a_compiler_that_draws_its_settings_is_made_again_until_it_is_fast(
    taken_ms: tuple[float, ...], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, forgotten = Lottery(*taken_ms), list[str]()
    runtime = SimpleNamespace(rules=Rules(makings_s=60.0))
    calls = BaselineCalls(cast(Any, runtime), cast(Any, harness), nullcontext)
    monkeypatch.setattr(baselines, "compiled", lambda runtime, name: lambda arguments: name)
    monkeypatch.setattr(baselines, "tune_again", lambda: forgotten.append("again") or [])
    assert calls.get("compile")(()) == "compile"
    assert harness.asked == asked
    assert len(forgotten) == asked - 1
    fastest = calls.fastest["compile"]
    assert fastest.median_ms == min(taken_ms[:asked])
    assert f"the fastest of {asked} makings" in fastest.conditions.notes[-1]


@pytest.mark.parametrize(
    ("name", "nodes", "first_s", "makings"),
    [
        ("compile", 100, 4.0, 1),
        ("compile", 100, 2.0, 3),
        ("compile", 99, 28.0, 3),  # a process without compilers, and empty caches
        ("max-autotune", 100, 20.0, 1),
        ("max-autotune", 8, 20.0, 3),
    ],
)
def test_a_large_module_that_takes_long_to_compile_is_made_once(
    name: str, nodes: int, first_s: float, makings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, made = [0.0], list[str]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def compiled(runtime: object, name: str) -> Any:
        now[0] += first_s
        made.append(name)
        return lambda arguments: name

    monkeypatch.setattr(baselines, "compiled", compiled)
    monkeypatch.setattr(baselines, "tune_again", list)
    task = SimpleNamespace(graph=SimpleNamespace(nodes=range(nodes)))
    runtime = SimpleNamespace(rules=Rules(), task=task)
    calls = BaselineCalls(cast(Any, runtime), cast(Any, Lottery(*[0.03] * 5)), nullcontext)
    assert calls.get(name)(()) == name
    assert len(made) == makings
    assert (name in calls.fastest) == (makings > 1)
    assert calls.setup_s[name] == makings * first_s


def test_what_is_tuned_anew_runs_again_and_keeps_what_graphs_may_need(
    calls: BaselineCalls,
) -> None:
    module = torch.nn.ReLU()
    compiled = torch.compile(module, backend="eager")
    compiled(torch.ones(2))
    assert isinstance(baselines.tune_again(), list)
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2))


def beside_compile(baseline_ms: float) -> Comparison:
    return Comparison(
        baseline="compile", candidate_ms=0.04, baseline_ms=baseline_ms, ratio=baseline_ms / 0.04,
        ci95_low=0.99 * baseline_ms / 0.04, ci95_high=1.01 * baseline_ms / 0.04, pairs=20,
        candidate_samples_ms=(0.04,), baseline_samples_ms=(baseline_ms,), clock="device",
        conditions=Conditions(device="gpu", l2_flushed=True, input_sets=1),
    )  # fmt: skip


def test_a_ratio_is_beside_the_fastest_making_that_was_seen() -> None:
    slow = beside_compile(0.07)
    found = beside_fastest(slow, 0.035)
    assert slow.outcome == "faster"
    assert found.outcome == "slower"
    assert (found.baseline_ms, found.ratio) == (0.035, pytest.approx(0.875))
    assert "the fastest that was seen took 0.035 ms" in found.conditions.notes[-1]
    assert beside_fastest(slow, 0.0695) == slow  # within what two minutes differ by
    assert beside_fastest(slow, None) == slow
    on_cpu = slow.model_copy(update={"clock": "wall"})
    assert beside_fastest(on_cpu, 0.035) == on_cpu  # there the machine drifts more, and none draws
