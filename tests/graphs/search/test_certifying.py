"""Which finalist a certification ends with."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

from kernelwright.graphs.run_view.events import Event
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.search.measure import finalists
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import (
    Candidate,
    Comparison,
    Conditions,
    Evaluation,
    Verdict,
    Verification,
)
from kernelwright.tools.types.measurement import Paired
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


async def test_a_finalist_that_fails_certification_gives_way_to_the_next(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    fallen: list[str] = []

    def wrong(candidate: Candidate, effort: str) -> Verdict | None:
        if effort == "certify" and not fallen:
            fallen.append(candidate.id)
        return Verdict.NONDETERMINISTIC if effort == "certify" and candidate.id in fallen else None

    events: list[Event] = []
    summary = await search(executor=toy.ToyExecutor(wrong=wrong), events=events)
    assert summary.status == "improved"
    assert summary.best is not None
    assert summary.best.candidate not in fallen
    assert any(event.kind == "noted" and fallen[0] in event.words for event in events)


async def test_where_screened_times_were_far_off_the_next_finalist_has_a_try(
    search: Search, toy: ModuleType
) -> None:
    """Other programs had the processors meanwhile, and longer when the fastest was screened."""
    loops = {"rows": {name: toy.LOOPS["rows"][name] for name in ("once", "tiled")}}
    first: dict[tuple[str, ...], str] = {}

    def off(candidate: Candidate, effort: str) -> float:
        tuned = first.setdefault(candidate.strategies, candidate.id) != candidate.id
        fastest = "rows=tiled" in candidate.strategies
        return 9.0 if tuned else (3.0 if fastest else 1.6) if effort == "screen" else 1.0

    executor = toy.ToyExecutor(loops=loops, off=off, compile_ms=1.65)
    summary = await search(loops=loops, executor=executor)
    assert summary.best is not None
    assert summary.best.candidate in [id for key, id in first.items() if "rows=tiled" in key]
    assert summary.status == "improved"


async def test_what_only_ran_late_is_not_called_wrong(search: Search, toy: ModuleType) -> None:
    def late(candidate: Candidate, effort: str) -> Verdict | None:
        return Verdict.TIMED_OUT if effort == "certify" else None

    summary = await search(executor=toy.ToyExecutor(wrong=late), finalists=1)
    assert summary.status == "timed_out"


async def test_one_that_never_came_back_is_nothing_correct(search: Search, toy: ModuleType) -> None:
    executor = toy.ToyExecutor(wrong=lambda candidate, effort: Verdict.TIMED_OUT)
    assert (await search(executor=executor, rounds=1)).status == "nothing_correct"


def standing(number: int, mode: str, ratio: float, alone: float) -> Standing:
    """A certified candidate: its ratio by device time and that of its single calls."""
    pair = {"candidate_ms": 1.0, "baseline_ms": ratio, "pairs": 9}
    samples = {"candidate_samples_ms": (), "baseline_samples_ms": ()}
    conditions = Conditions(device="toy", l2_flushed=True, input_sets=1)
    compared = Comparison(
        baseline="eager",
        ratio=ratio,
        ci95_low=0.99 * ratio,
        ci95_high=1.01 * ratio,
        clock="device",
        conditions=conditions,
        latency=Paired(ratio=alone, ci95_low=0.99 * alone, ci95_high=1.01 * alone, **pair),
        **pair,
        **samples,
    )
    candidate = Candidate(id=mode, language="cpp", kernel="k", plan="p", mode=mode)
    right = Verification(verdict=Verdict.CORRECT, reason="")
    found = Evaluation(candidate=mode, verification=right, comparisons=(compared,))
    return Standing(
        number=number, candidate=candidate, round=1, author="coder", effort="certify",
        evaluation=found,
    )  # fmt: skip


def test_a_run_stands_for_the_way_of_calling_of_which_something_may_be_claimed() -> None:
    """By device time a graph gains nothing, and in single calls what calls one by one loses."""
    eager, graph = standing(1, "eager", 1.5, 0.8), standing(2, "graph", 1.4, 1.3)
    assert eager.evaluation.claim.outcome == "slower alone"
    assert choose((eager, graph)) is graph
    assert choose((eager, standing(2, "graph", 1.4, 0.7))) is eager


def test_the_other_ways_to_call_a_finalist_are_finalists() -> None:
    ways = (standing(1, "eager", 1.5, 0.8), standing(2, "graph", 1.4, 1.3))
    assert finalists(ways, 1) == ways
