from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.run_view.events import CandidateWritten, Critiqued, Event, IdeasProposed
from kernelwright.graphs.suite.ablation import Outcome, Row, ablate, budget, rows, trials
from kernelwright.profiles.load import Part, SearchProfile
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


async def test_without_planning_nothing_is_predicted(search: Search) -> None:
    events: list[Event] = []
    summary = await search(events=events, without=("ideas",))
    ideas = [idea for event in events if isinstance(event, IdeasProposed) for idea in event.ideas]
    assert ideas
    assert {idea.predicted_ms for idea in ideas} == {None}
    assert summary.best is not None


async def test_without_contrast_the_critic_says_nothing(search: Search) -> None:
    events: list[Event] = []
    await search(events=events, without=("contrast",))
    analyses = [event.analysis for event in events if isinstance(event, Critiqued)]
    assert analyses
    assert {(item.claims, item.prefer, item.predictions) for item in analyses} == {((), (), ())}


@pytest.mark.parametrize(("without", "tuned"), [((), True), (("tuning",), False)])
async def test_without_tuning_the_tuner_writes_nothing(
    search: Search, without: tuple[Part, ...], tuned: bool
) -> None:
    events: list[Event] = []
    await search(events=events, without=without)
    written = [event for event in events if isinstance(event, CandidateWritten)]
    assert any(event.by == "tuner" for event in written) is tuned


def test_a_file_and_seed_has_all_its_variants_next_to_each_other() -> None:
    found = trials((Path("a.py"), Path("b.py")), ("ideas", "tuning"), (0, 1))
    assert len(found) == 2 * 3 * 2
    assert [item.without for item in found[:3]] == [(), ("ideas",), ("tuning",)]
    assert {(item.file.name, item.seed) for item in found[:3]} == {("a.py", 0)}


def test_every_variant_may_spend_the_same(toy: ModuleType) -> None:
    profile = toy.PROFILE.model_copy(update={"patience": 1})
    whole, without = budget(profile, ()), budget(profile, ("contrast",))
    assert whole.patience == profile.rounds
    assert without.model_copy(update={"without": ()}) == whole


async def test_trials_end_as_outcomes_and_known_ones_are_not_run_again(
    search: Search, toy: ModuleType
) -> None:
    ran: list[tuple[Part, ...]] = []

    async def run(file: Path, profile: SearchProfile, seed: int) -> Summary | Refusal:
        ran.append(profile.without)
        if file.name == "bad.py":
            return Refusal(sentence="it has no module")
        return await search(seed=seed, **profile.model_dump())

    wanted = trials((Path("toy.py"), Path("bad.py")), ("ideas",), (0,))
    outcomes = [item async for item in ablate(wanted[:3], toy.PROFILE, run)]
    assert [item.speedup is not None for item in outcomes] == [True, True, False]
    assert "no module" in outcomes[2].failure
    again = [item async for item in ablate(wanted, toy.PROFILE, run, known=outcomes)]
    assert again[:3] == outcomes
    assert ran == [(), ("ideas",), (), ("ideas",)]
    more = toy.PROFILE.model_copy(update={"rounds": 2})
    assert [item async for item in ablate(wanted[:1], more, run, known=outcomes)]
    assert len(ran) == 5


def made(summary: Summary, task: str, without: tuple[Part, ...], speedup: float | None) -> Outcome:
    profile = SearchProfile.model_validate({
        "name": "t", "rounds": 1, "ideas_per_round": 1, "candidates_per_idea": 1, "repairs": 0,
        "patience": 1, "seconds": 1, "tuning_trials": 0, "finalists": 1,
        "stop_at_floor_fraction": 1, "minimum_gain": 1,
    })  # fmt: skip
    assert summary.best is not None
    best = summary.best.model_copy(update={"speedup_vs_best_baseline": speedup})
    changed = summary.model_copy(update={"best": best if speedup else None})
    return Outcome(
        task=task, without=without, seed=0, minds="playbook", budget=profile, summary=changed
    )


async def test_a_row_compares_with_the_whole_search_on_the_same_tasks(search: Search) -> None:
    summary = await search(rounds=1)
    table = rows([
        made(summary, "a.py", (), 2.0), made(summary, "b.py", (), 8.0),
        made(summary, "a.py", ("ideas",), 1.0), made(summary, "b.py", ("ideas",), 8.0),
        made(summary, "a.py", ("tuning",), 1.0), made(summary, "b.py", ("tuning",), None),
    ])  # fmt: skip
    whole, ideas, tuning = table
    assert isinstance(whole, Row)
    assert (whole.speedup, whole.against_whole) == (pytest.approx(4.0), pytest.approx(1.0))
    assert ideas.against_whole == pytest.approx(0.5**0.5)
    assert (ideas.lowest, ideas.highest) == (0.5, 1.0)
    assert (tuning.found, tuning.trials, tuning.against_whole) == (1, 2, 0.5)
