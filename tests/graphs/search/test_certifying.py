"""Which finalist a certification ends with."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

from kernelwright.graphs.run_view.events import Event
from kernelwright.tools.types import Candidate, Verdict
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
