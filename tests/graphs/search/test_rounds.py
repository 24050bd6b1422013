"""Rounds that matter: how many there are at least, how large they are, what their time is."""

from collections.abc import Awaitable, Callable
from math import exp
from types import ModuleType

import pytest

from kernelwright.graphs.run_view.events import (
    CandidateJudged,
    CandidateWritten,
    Event,
    IdeasProposed,
    RoundFinished,
)
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.rounds import A_PLATEAU, ideas_wanted
from kernelwright.profiles.load import search_profile
from kernelwright.tools.types import LedgerEntry
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


def entry(predicted_ms: float | None, measured_ms: float | None) -> LedgerEntry:
    return LedgerEntry(
        idea="i", category="memory", predicted_ms=predicted_ms, measured_ms=measured_ms,
        best_before_ms=None, candidates=1, correct=int(measured_ms is not None), round=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ledger", "wanted"),
    [
        ((), 6),
        ((entry(1.0, 1.0),), 6),
        # All off by the same factor is as good as not off at all.
        ((entry(1.0, 2.0), entry(2.0, 4.0), entry(3.0, 6.0)), 2),
        ((entry(1.0, exp(0.2)), entry(1.0, 1.0), entry(1.0, exp(-0.2))), 3),
        ((entry(1.0, 3.0), entry(1.0, 1.0), entry(1.0, 0.3)), 6),
        ((entry(1.0, 1.0), entry(1.0, 1.0), entry(1.0, None), entry(1.0, None)), 3),
        ((entry(None, 1.0), entry(None, 2.0)), 6),
    ],
)
def test_a_round_is_as_wide_as_predictions_were_wrong(
    ledger: tuple[LedgerEntry, ...], wanted: int
) -> None:
    assert ideas_wanted(6, ledger) == wanted


@pytest.mark.parametrize("name", ["standard", "deep", "careful"])
def test_longer_searches_have_three_rounds_at_least(name: str) -> None:
    profile = search_profile(name)
    assert profile.minimum_rounds >= 3
    assert profile.rounds >= profile.minimum_rounds


async def test_impatience_does_not_end_a_search_before_its_rounds(search: Search) -> None:
    hasty = await search(patience=1, rounds=6, tuning_trials=1)
    patient = await search(patience=1, rounds=6, tuning_trials=1, minimum_rounds=5)
    assert hasty.rounds < 5
    assert patient.rounds >= 5


async def test_a_plateau_that_is_proven_ends_it_before(search: Search, toy: ModuleType) -> None:
    events: list[Event] = []
    loops = {"rows": {"once": ("on chip", 1.0, 1.6)}}
    summary = await search(
        loops=loops, executor=toy.ToyExecutor(loops=loops), events=events, rounds=9,
        minimum_rounds=9, tuning_trials=50, patience=1,
    )  # fmt: skip
    (last,) = [e for e in events if isinstance(e, RoundFinished) and e.why_stop]
    assert last.why_stop == A_PLATEAU
    assert 1 < summary.rounds < 9


async def test_a_round_leaves_time_for_those_that_are_promised(
    search: Search, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock counts questions to the device, a second each."""
    monkeypatch.setattr(SearchContext, "searched_s", property(_questions))
    loops = {"rows": {f"w{n}": ("streams", 1.0 + n / 9, 1.0 + n / 9) for n in range(16)}}

    events: list[Event] = []

    async def screened(minimum_rounds: int) -> dict[int, list[str]]:
        events.clear()
        await search(
            loops=loops, executor=toy.ToyExecutor(loops=loops, eager_ms=9.0), events=events,
            ideas_per_round=16, candidates_per_idea=1, tuning_trials=9, rounds=3,
            minimum_rounds=minimum_rounds, seconds=36.0, seconds_hold="searching", repairs=0,
            finalists=1,
        )  # fmt: skip
        found: dict[int, list[str]] = {}
        for event in events:
            if isinstance(event, CandidateJudged) and event.effort == "screen":
                found.setdefault(event.round, []).append(event.evaluation.candidate)
        return found

    alone, shared = await screened(1), await screened(3)
    assert set(shared) == {1, 2, 3}
    assert len(shared[1]) < len(alone[1])
    # What had to wait is judged later, and nothing twice.
    first = {e.candidate.id for e in events if isinstance(e, CandidateWritten) and e.round == 1}
    assert first & {*shared[2]}
    assert not {*shared[1]} & {*shared[2]}


def _questions(context: SearchContext) -> float:
    asked: list[object] = getattr(context.executor, "asked")  # noqa: B009 - the toy's
    return float(len(asked))


async def test_places_that_ideas_do_not_need_go_to_settings(
    search: Search, toy: ModuleType
) -> None:
    def sizes(events: list[Event]) -> dict[int, int]:
        return {e.round: len(e.ideas) for e in events if isinstance(e, IdeasProposed)}

    # Everything takes twice what is predicted: the order was right.
    loops = {"rows": {f"w{n}": ("streams", 1.0 + n / 9, 2.0 + n / 4.5) for n in range(12)}}
    fixed: list[Event] = []
    sized: list[Event] = []
    common = {
        "loops": loops, "ideas_per_round": 5, "rounds": 2, "candidates_per_idea": 1,
        "tuning_trials": 1, "repairs": 0,
    }  # fmt: skip
    await search(events=fixed, executor=toy.ToyExecutor(loops=loops), **common)
    other = toy.ToyExecutor(loops=loops)
    await search(events=sized, executor=other, round_size="by what is known", **common)
    assert sizes(fixed) == {1: 5, 2: 5}
    assert sizes(sized)[1] == 5
    assert sizes(sized)[2] < 5

    def judged(events: list[Event]) -> int:
        return sum(
            isinstance(e, CandidateJudged) and e.effort == "screen" and e.round == 2 for e in events
        )

    assert judged(sized) == judged(fixed)
