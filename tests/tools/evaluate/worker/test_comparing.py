"""A candidate beside baselines that fail, and beside graphs where it cannot be captured as one."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.worker.comparing import Comparing
from kernelwright.tools.types import Comparison

GRAPHED = ("eager", "graph", "compile-graph")


def comparing(eager: Callable[[object], object], compiled: Callable[[object], object]):
    """A task runtime whose clock calls the baseline once, and what it compared."""
    compared: list[str] = []

    def compare(name, baseline, candidate, **_):
        baseline(())
        candidate(())
        compared.append(name)
        return Comparison.model_construct(
            baseline=name, ci95_high=2.0, candidate_ms=1.0, baseline_ms=2.0, ratio=2.0, clock="wall"
        )

    made = {"eager": eager, "compile": compiled}
    task_runtime = SimpleNamespace(
        harness=SimpleNamespace(compare=compare, inspection=None, on_gpu=False),
        runtime=SimpleNamespace(device="cpu"),
        baselines=SimpleNamespace(get=made.__getitem__, fastest={}),
    )
    request = SimpleNamespace(
        rules=Rules(),
        compare_to=("eager", "compile"),
        baselines=None,
        effort="precise",
        until_s=None,
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
    assert [item.baseline for item in found.compare(works)] == ["compile"]
    assert compared == ["compile"]
    assert found.failed == [
        "its time beside eager, which failed: it ran out of memory: Tried to allocate 9 GiB"
    ]


def test_a_candidate_without_room_is_not_excused():
    def fails(_: object) -> object:
        raise MemoryError("none")

    found, _ = comparing(works, works)
    with pytest.raises(MemoryError):
        found.compare(fails)
    assert found.failed == []


def beside_graphs(captured: Callable[[object], object] | None, captures: list[object]):
    """Comparing with two graphs on a made-up device, where a capture gives `captured`."""
    candidates: dict[str, object] = {}
    said: dict[str, tuple[str, ...]] = {}

    def compare(name, baseline, candidate, *, notes: tuple[str, ...], mode=None, **_):
        candidates[name if mode is None else mode] = candidate
        said[name if mode is None else mode] = notes
        return Comparison.model_construct(
            baseline=name, ci95_high=1.0, candidate_ms=1.0, baseline_ms=1.0, ratio=1.0, clock="wall"
        )

    def latency(baseline, candidate, **_):
        candidates[f"single calls {len(candidates)}"] = candidate

    def as_graph(call: object) -> object:
        captures.append(call)
        return captured

    found, _ = comparing(works, works)
    runtime = found._task_runtime
    runtime.harness = SimpleNamespace(
        compare=compare, latency=latency, as_graph=as_graph, inspection=None, on_gpu=True
    )
    runtime.baselines.get = lambda name: works
    runtime.remark = lambda name: ""
    known = SimpleNamespace(
        items=(), noise=0.0, best=SimpleNamespace(name="graph"), named=lambda name: None
    )
    found._request = SimpleNamespace(
        rules=Rules(), compare_to=GRAPHED, baselines=known, effort="certify", until_s=None,
        candidate=SimpleNamespace(mode="eager"),
    )  # fmt: skip
    return found, candidates, said


def test_what_cannot_be_captured_meets_graphs_with_its_plain_calls():
    captures: list[object] = []
    found, candidates, said = beside_graphs(None, captures)
    call = lambda _: None  # noqa: E731
    compared = found.compare(call)
    assert [item.baseline for item in compared] == list(GRAPHED)
    assert not any(item.as_graph for item in compared)
    modes = found.modes(call)
    assert [item.comparison.baseline for item in modes] == ["graph", "graph"]
    assert all(candidate is call for candidate in candidates.values())
    assert len(candidates) == 2 * len(GRAPHED) + 2
    assert {name for name, notes in said.items() if "cannot be captured" in " ".join(notes)} == {
        "graph", "compile-graph", "offline", "server",
    }  # fmt: skip
    assert captures == [call]  # a capture that failed is not tried again
    assert found.failed == []


def test_what_can_be_captured_meets_graphs_as_one():
    captures: list[object] = []
    found, candidates, said = beside_graphs(works, captures)
    call = lambda _: None  # noqa: E731
    compared = {item.baseline: item.as_graph for item in found.compare(call)}
    assert compared == {"eager": False, "graph": True, "compile-graph": True}
    assert all(item.comparison.as_graph for item in found.modes(call))
    assert candidates["eager"] is call
    assert candidates["graph"] is candidates["server"] is works
    assert captures == [call]
    assert not any(said.values())


def test_what_is_a_graph_itself_competes_as_one_with_every_baseline():
    captures: list[object] = []
    found, _, said = beside_graphs(None, captures)
    found._request.candidate.mode = "graph"
    found.compare(works)
    assert captures == []
    assert said["graph"] == ()


def hurried(left_s: float | None, lasts_s: float = 0.0):
    """Comparing a finalist that is to end in so many seconds: what each comparison was given."""
    given: list[tuple[float, float]] = []

    def compare(name, baseline, candidate, *, seconds, patience_s=0.0, **_):
        given.append((seconds, patience_s))
        time.sleep(lasts_s)
        return Comparison.model_construct(
            baseline=name, ci95_high=2.0, candidate_ms=1.0, baseline_ms=2.0, ratio=2.0, clock="wall"
        )

    found, _ = comparing(works, works)
    found._task_runtime.harness.compare = compare
    found._task_runtime.remark = lambda name: ""
    known = SimpleNamespace(
        items=(), noise=0.0, best=SimpleNamespace(name="eager"), named=lambda name: None
    )
    found._request = SimpleNamespace(
        rules=Rules(), compare_to=("eager", "compile"), baselines=known, effort="certify",
        until_s=None if left_s is None else time.monotonic() + left_s,
        candidate=SimpleNamespace(mode="eager"),
    )  # fmt: skip
    found._steps.seconds = 2.5
    return found, given


def test_a_finalists_comparisons_share_what_is_left_of_the_time():
    found, given = hurried(None)
    found.compare(works)
    assert given == [(2.5, 8.0), (2.5, 8.0)]
    found, given = hurried(2.0, lasts_s=0.5)
    found.compare(works)
    assert given[0] == pytest.approx((1.0, 1.0), abs=0.1)
    assert given[1] == pytest.approx((1.5, 1.5), abs=0.1)  # the first left more than its share


def test_what_had_no_time_left_is_said_to_be_missing():
    found, given = hurried(-1.0)
    found.compare(works)
    assert given == [(0.0, 0.0), (0.0, 0.0)]
    assert found.modes(works) == ()
    assert found.failed == ["its times under other loads: there was no time left for them"]
