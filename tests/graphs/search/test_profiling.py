"""What profilers of the device measure in a search, and what they may spend."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.events import IdeasProposed, Profiled
from kernelwright.graphs.search import learn
from kernelwright.graphs.search.pace import pace_of
from kernelwright.graphs.search.state import SearchState
from kernelwright.tools.archive import Archive
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


def profiles(home: Path, run: str) -> dict[str, set[str]]:
    """The names of readings of every profiled candidate."""
    archive = Archive.open(run, home)
    try:
        told = (
            Profiled.model_validate_json(item.payload) for item in archive.events(kind="profiled")
        )
        return {item.candidate: {reading.name for reading in item.evidence} for item in told}
    finally:
        archive.close()


async def test_elites_are_measured_once_and_the_readings_are_told(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor()
    summary = await search(executor=executor)
    found = profiles(tmp_path, summary.run)
    assert summary.best is not None
    assert "run.time" in found[summary.best.candidate]
    assert sorted(executor.profiled) == sorted(set(executor.profiled))
    assert set(executor.profiled) == set(found)


async def test_when_the_seconds_are_used_up_the_search_goes_on_and_says_so(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor(profiling_s=13.0)
    summary = await search(executor=executor, profiling_seconds=12.0)
    found = profiles(tmp_path, summary.run)
    # The first one takes all there is.
    assert len(executor.profiled) == 1
    assert len(found) > len(executor.profiled)
    spared = [names for name, names in found.items() if name not in executor.profiled]
    assert all("counters" in names and "run.time" not in names for names in spared)


async def test_a_search_that_may_not_profile_never_asks(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor()
    summary = await search(executor=executor, profiling_seconds=0.0)
    assert executor.profiled == []
    assert profiles(tmp_path, summary.run)


@pytest.mark.parametrize(("holds", "asked"), [("everything", False), ("certification", True)])
async def test_behind_the_end_of_a_held_search_nobody_is_profiled(
    search: Search, toy: ModuleType, holds: str, asked: bool
) -> None:
    executor = toy.ToyExecutor()
    summary = await search(executor=executor, seconds=0.01, seconds_hold=holds)
    assert summary.best is not None
    assert bool(executor.profiled) is asked


@pytest.mark.exhaustive
async def test_a_replay_reads_what_was_measured_then(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search(executor=toy.ToyExecutor(profiling_s=5.0), profiling_seconds=12.0)
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None
    assert told.ended == ""


async def test_a_run_that_is_older_than_profiling_replays_without(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    import sqlite3

    summary = await search(executor=toy.ToyExecutor())
    with sqlite3.connect(tmp_path / "runs" / summary.run / "run.db") as database:
        database.execute("drop table measured")
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None


async def test_a_held_search_replays(search: Search, toy: ModuleType, tmp_path: Path) -> None:
    summary = await search(seconds=0.01, seconds_hold="everything")
    told = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None
    assert told.ended == ""


@pytest.mark.parametrize(
    ("kind", "took_s", "profiled_s", "paced_s", "until_s"),
    [
        ("cpu", 30.0, 0.0, 0.0, 90.0 - 15.0),
        ("cpu", 1e4, 0.0, 0.0, 90.0 - 25.0),
        ("cuda", 30.0, 0.0, 0.0, 90.0 - 15.0 - 20.0),  # the device's first
        ("cuda", 30.0, 0.0, 7.0, 90.0 - 15.0 - 7.0),  # an earlier search knows
        ("cuda", 30.0, 4.0, 7.0, 90.0 - 15.0 - 4.0),  # this one knows better
    ],
)
async def test_behind_a_profile_half_a_round_has_to_be_left(
    kind: str, took_s: float, profiled_s: float, paced_s: float, until_s: float
) -> None:
    asked: list[float] = []
    planned = IdeasProposed(
        at=datetime.now(UTC) - timedelta(seconds=took_s), round=2, ideas=(), reasoning=""
    )
    stored = SimpleNamespace(payload=planned.model_dump_json())

    def is_out_of_time(what: str, until_s: float) -> bool:
        asked.append(until_s)
        return True

    context = SimpleNamespace(
        archive=SimpleNamespace(
            term=lambda name: "held",
            event=lambda key: stored,
            profile_s=lambda: profiled_s,
            profiling_s=lambda: profiled_s,
        ),
        hardware=SimpleNamespace(kind=kind),
        executor=SimpleNamespace(rules=None),
        task=SimpleNamespace(graph=SimpleNamespace(nodes=())),
        pace=SimpleNamespace(profile_s=paced_s),
        searched_s=50.0,
        searching_ends_s=90.0,
        is_out_of_time=is_out_of_time,
    )
    runtime: Any = SimpleNamespace(context=context)
    assert await learn.profile(SearchState(round=2), runtime) == {}
    assert asked == [pytest.approx(until_s, abs=0.5)]


async def test_what_a_profile_took_is_known_to_the_next_search(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    await search(executor=toy.ToyExecutor(profiling_s=5.0), seconds_hold="everything")
    assert pace_of(tmp_path, toy.HARDWARE).profile_s == 5.0
