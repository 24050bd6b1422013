import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.events import (
    EVENT,
    BaselinesMeasured,
    CandidateJudged,
    Critiqued,
    Event,
    IdeasProposed,
)
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import measure_again
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive, RunError, elites, list_runs
from kernelwright.tools.evaluate.executors.base.executor import Capabilities
from kernelwright.tools.types import Candidate, Effort, Evaluation, Task, Verdict
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


async def test_a_search_finds_the_fastest_and_certifies_it(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor()
    summary = await search(executor=executor)
    assert summary.status == "improved"
    assert summary.best is not None
    assert summary.best.speedup_vs_best_baseline > 1.0
    archive = Archive.open(summary.run, tmp_path)
    standings = archive.standings()
    assert summary.best.median_ms == min(executor.cost(item.candidate) for item in standings)
    assert archive.evaluation(summary.best.candidate, "certify") is not None
    assert archive.record().summary == summary
    assert archive.record().status == "finished"
    assert summary.candidates.written == len(standings)


async def test_every_kind_of_event_is_told_once_and_in_order(
    search: Search, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(events=events)
    stored = Archive.open(summary.run, tmp_path).events()
    assert [EVENT.validate_json(event.payload) for event in stored] == events
    kinds = [event.kind for event in events]
    assert kinds[0] == "run_started"
    assert kinds[1] == "baselines_measured"
    assert kinds[2] == "ideas_proposed"
    assert kinds[-1] == "run_finished"
    for kind in ("candidate_written", "candidate_judged", "best_improved", "profiled", "critiqued"):
        assert kind in kinds
    assert Counter(kinds)["round_finished"] == summary.rounds
    keys = [event.key for event in stored if event.key]
    assert len(keys) == len(set(keys))


async def test_a_first_best_is_known_before_torch_compile_had_its_turn(search: Search) -> None:
    events: list[Event] = []
    await search(events=events)
    wanted = ("baselines_measured", "candidate_judged", "best_improved")
    kinds = [event.kind for event in events if event.kind in wanted]
    assert kinds[:3] == ["baselines_measured", "candidate_judged", "best_improved"]
    assert kinds.count("baselines_measured") == 2


async def test_torch_compile_has_its_turn_before_anything_is_timed_beside_it(
    search: Search, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(events=events)
    efforts = {
        archived.candidate.id: archived.effort
        for archived in Archive.open(summary.run, tmp_path).standings()
    }
    assert set(efforts.values()) - {"screen"}
    told = [event.kind for event in events]
    complete = [n for n, kind in enumerate(told) if kind == "baselines_measured"][1]
    compared = [
        number
        for number, event in enumerate(events)
        if isinstance(event, CandidateJudged) and event.evaluation.comparisons
    ]
    assert compared
    assert complete < min(compared)


@pytest.mark.parametrize(("kind", "screened"), [("cuda", 2), ("cpu", 1)])
async def test_where_several_are_in_flight_a_second_one_is_screened_however_short_the_time(
    search: Search, toy: ModuleType, kind: str, screened: int
) -> None:
    """On a CPU, where one waits for the other, the budget stands."""
    executor = toy.ToyExecutor(pause_s=0.05)
    device = (await executor.hardware()).model_copy(update={"kind": kind})
    executor.hardware = lambda: asyncio.sleep(0, device)
    summary = await search(rounds=1, seconds=0.001, executor=executor)
    assert summary.candidates.timed == screened


async def test_a_first_best_that_does_not_hold_gives_way(search: Search, toy: ModuleType) -> None:
    first: list[str] = []

    def wrong(candidate: Candidate, effort: str) -> Verdict | None:
        first.append(candidate.id)
        failed = effort == "precise" and candidate.id == first[0]
        return Verdict.NONDETERMINISTIC if failed else None

    summary = await search(executor=toy.ToyExecutor(wrong=wrong))
    assert summary.best is not None
    assert summary.best.candidate != first[0]
    assert summary.status == "improved"


async def test_a_wrong_kernel_is_never_an_elite_and_never_the_best(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    def wrong(candidate: Candidate, effort: str) -> Verdict | None:
        return Verdict.WRONG_RESULT if "rows=tiled" in candidate.strategies else None

    summary = await search(executor=toy.ToyExecutor(wrong=wrong))
    archive = Archive.open(summary.run, tmp_path)
    assert any(i.evaluation.verdict is Verdict.WRONG_RESULT for i in archive.standings())
    assert summary.best is not None
    assert "rows=tiled" not in archive.candidate(summary.best.candidate).strategies
    for elite in elites(archive.standings()):
        assert elite.standing.evaluation.verdict is Verdict.CORRECT


async def test_a_failed_idea_is_repaired_a_bounded_number_of_times(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    everything = toy.ToyExecutor(wrong=lambda candidate, effort: Verdict.WRONG_RESULT)
    summary = await search(executor=everything, rounds=1, repairs=2)
    assert summary.status == "nothing_correct"
    assert summary.best is None
    repairs = [
        item.candidate
        for item in Archive.open(summary.run, tmp_path).candidates()
        if item.author == "repair"
    ]
    assert repairs
    assert all("instead of" in candidate.note for candidate in repairs)
    assert all("the toy says so" in candidate.note for candidate in repairs)


@pytest.mark.parametrize(
    ("eager_ms", "compile_ms", "status"),
    [
        (2.5, 2.0, "improved"),
        pytest.param(2.5, None, "improved", marks=pytest.mark.exhaustive),
        (2.5, 0.9, "faster_than_eager"),
        (1.0, 0.9, "no_improvement"),
    ],
)
async def test_the_status_claims_no_more_than_the_intervals_show(
    search: Search, toy: ModuleType, eager_ms: float, compile_ms: float | None, status: str
) -> None:
    executor = toy.ToyExecutor(eager_ms=eager_ms, compile_ms=compile_ms)
    assert (await search(executor=executor)).status == status


async def test_a_task_without_loops_ends_honestly(search: Search) -> None:
    events: list[Event] = []
    summary = await search(loops={}, events=events)
    assert summary.status == "no_improvement"
    assert summary.stopped_because == (
        "PyTorch's library does all of it, and rules have no kernels for that"
    )
    proposed = next(event for event in events if isinstance(event, IdeasProposed))
    assert proposed.reasoning.startswith(summary.stopped_because)
    assert summary.candidates.written == 0


async def test_budgets_are_respected(search: Search, toy: ModuleType) -> None:
    assert (await search(rounds=1)).rounds == 1
    patient = await search(rounds=9, minimum_gain=9.0, patience=1)
    assert patient.stopped_because == "nothing improved for 1 round"
    slow = toy.ToyExecutor(pause_s=0.2)
    hurried = await search(rounds=9, seconds=2.0, executor=slow)
    assert hurried.stopped_because == "the budget of 2 seconds is used up"
    assert hurried.best is not None


async def test_what_pytorch_takes_to_be_measured_is_none_of_the_searchs_time(
    search: Search, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("kernelwright.tools.archive.database.monotonic", lambda: now_s)

    def pass_time(what: str) -> None:
        nonlocal now_s
        now_s += 1000.0 if what in ("eager", "compile") else 1.0

    events: list[Event] = []
    summary = await search(
        rounds=2, seconds=50.0, executor=toy.ToyExecutor(takes=pass_time), events=events
    )
    assert summary.rounds == 2
    assert summary.stopped_because == "the budget of 2 rounds is used up"
    assert summary.seconds > 2000
    measured = [event.seconds for event in events if isinstance(event, BaselinesMeasured)]
    assert measured == [1000.0, 1000.0]


async def test_the_floor_ends_a_search(search: Search) -> None:
    summary = await search(rounds=9, stop_at_floor_fraction=0.2)
    assert "of the floor" in summary.stopped_because
    assert summary.rounds == 1


async def test_the_same_seed_makes_the_same_decisions(search: Search, tmp_path: Path) -> None:
    told = []
    for name in "ab":
        summary = await search(seed=5, home=tmp_path / name)
        archive = Archive.open(summary.run, tmp_path / name)
        told.append(
            (
                [item.candidate for item in archive.candidates()],
                archive.ideas(),
                archive.analyses(),
                archive.ledger(),
            )
        )
    assert told[0] == told[1]


async def test_predictions_of_one_round_are_scored_in_the_next(search: Search) -> None:
    events: list[Event] = []
    await search(events=events)
    analyses = [event.analysis for event in events if isinstance(event, Critiqued)]
    assert analyses[0].predictions_checked == 0
    assert analyses[-1].predictions_checked > 0
    assert any(p.held is not None for p in analyses[-1].predictions)


async def test_stop_keeps_the_best_so_far_and_the_run_goes_on_later(
    search: Search, resume: Search, toy: ModuleType, tmp_path: Path
) -> None:
    control, events = Control(), list[Event]()

    def listener(event: Event) -> None:
        events.append(event)
        if event.kind == "best_improved":
            control.stop("you asked")

    stopped = await search(control=control, listener=listener)
    assert stopped.status == "stopped"
    assert stopped.stopped_because == "you asked"
    assert stopped.best is not None
    assert [info.status for info in list_runs(tmp_path)] == ["stopped"]
    before = {e.evaluation.candidate for e in events if isinstance(e, CandidateJudged)}
    executor = toy.ToyExecutor()
    finished = await resume(stopped.run, executor=executor)
    assert finished.status == "improved"
    assert not {id for id, effort in executor.asked if effort == "screen"} & before
    assert ("eager", "screen") not in executor.asked


async def test_a_paused_run_ends_at_a_step_and_goes_on(search: Search, resume: Search) -> None:
    control = Control()

    def listener(event: Event) -> None:
        if event.kind == "critiqued":
            control.pause()

    paused = await search(control=control, listener=listener)
    assert paused.status == "stopped"
    assert paused.stopped_because == "paused"
    assert (await resume(paused.run)).status == "improved"


async def test_a_finished_run_answers_with_its_summary_or_goes_on_when_given_more(
    search: Search, resume: Search, toy: ModuleType
) -> None:
    first = await search(rounds=1)
    untouched = toy.ToyExecutor()
    assert await resume(first.run, executor=untouched) == first
    assert untouched.asked == []
    events: list[Event] = []
    more = await resume(first.run, rounds=2, events=events)
    assert more.rounds == 2
    assert [event.round for event in events if isinstance(event, IdeasProposed)] == [2]


async def test_what_the_critic_says_reaches_the_next_ideas(search: Search) -> None:
    events: list[Event] = []
    await search(events=events)
    proposals = [event for event in events if isinstance(event, IdeasProposed)]
    assert "critic" not in proposals[0].reasoning
    assert any("the critic" in proposal.reasoning for proposal in proposals[1:])


async def test_a_busy_host_neither_reaches_the_floor_nor_makes_a_record(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    class Busier(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        """After the baselines everything takes four times as long, eager too."""

        def cost(self, candidate: Candidate) -> float:
            return 4.0 * float(super().cost(candidate))

        def _comparisons(self, ms: float) -> object:
            found = super()._comparisons(ms)
            return tuple(item.model_copy(update={"ratio": 4.0 * item.ratio}) for item in found)

    summary = await search(executor=Busier(), rounds=2, stop_at_floor_fraction=0.3)
    assert "of the floor" not in summary.stopped_because
    archive = Archive.open(summary.run, tmp_path)
    best = archive.best()
    assert best is not None
    assert best.evaluation.median_ms == min(
        item.evaluation.median_ms or 0.0 for item in archive.standings()
    )


@pytest.mark.parametrize("device", ["cuda", "cpu"])
async def test_where_several_may_be_in_flight_all_are_known_before_the_first_is_judged(
    search: Search, toy: ModuleType, device: str
) -> None:
    @dataclass
    class Foreseeing(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(foresees=True)

        foreseen: list[str] = field(default_factory=list)

        async def hardware(self) -> Hardware:
            found: Hardware = toy.HARDWARE
            return found.model_copy(update={"kind": device})

        def foresee(self, candidates: Sequence[Candidate]) -> None:
            if not self.foreseen:
                assert [what for what, _ in self.asked] == ["eager"]
            self.foreseen += [candidate.id for candidate in candidates]

    executor = Foreseeing()
    await search(executor=executor, rounds=1)
    _, *screened = [what for what, effort in executor.asked if effort == "screen"]
    assert executor.foreseen[0] == screened[0]
    assert len(executor.foreseen) >= 2
    assert set(executor.foreseen) <= set(screened)


async def test_a_result_that_settled_nothing_is_measured_again(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    class Noisy(toy.ToyExecutor):
        """A machine that was busy at first."""

        quiet = False

        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            found = await super().evaluate(task, candidate, effort)
            if self.quiet:
                return found
            wide = {"ci95_low": 1.06, "ci95_high": 2.93}
            noisy = tuple(item.model_copy(update=wide) for item in found.comparisons)
            return found.model_copy(update={"comparisons": noisy})

    executor = Noisy()
    summary = await search(executor=executor)
    assert summary.status == "not_settled"
    assert summary.best is not None
    assert summary.best.outcome == "not settled"
    assert "% of the ratio wide" in summary.best.claim
    executor.quiet, executor.eager_ms = True, 3.0
    events: list[Event] = []
    again = await measure_again(
        summary.run, home=tmp_path, executor=executor, listener=events.append
    )
    assert isinstance(again, Summary)
    assert again.status == "improved"
    kinds = [event.kind for event in events]
    told = ["run_started", "noted", "baselines_measured", "candidate_judged", "run_finished"]
    assert kinds == told
    # What PyTorch takes, and how noisy it is, is of the same hour as the result.
    assert again.baselines["eager"].median_ms == 3.0
    assert summary.baselines["eager"].median_ms == 2.5
    archive = Archive.open(summary.run, tmp_path)
    assert archive.record().summary == again
    kept = archive.evaluation(summary.best.candidate, "certify")
    assert kept is not None
    assert kept.claim is not None
    assert kept.claim.outcome == "faster"
    # A third time is no conflict with what was kept of the first, and the search went by the first.
    executor.eager_ms = 4.0
    await measure_again(summary.run, home=tmp_path, executor=executor)
    replayed = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert replayed.difference is None


async def test_measuring_again_can_be_ended_and_changes_nothing_then(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    control = Control()

    class Interrupted(toy.ToyExecutor):
        """Somebody ends it while the result is judged."""

        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            control.stop()
            await asyncio.sleep(60)
            raise AssertionError("nobody ended it")

    summary = await search()
    before = Archive.open(summary.run, tmp_path).record()
    events: list[Event] = []
    again = await measure_again(
        summary.run,
        home=tmp_path,
        executor=Interrupted(eager_ms=9.0),
        control=control,
        listener=events.append,
    )
    assert again == summary
    assert Archive.open(summary.run, tmp_path).record() == before
    assert [event.kind for event in events] == ["run_started", "noted", "noted", "run_finished"]


async def test_what_came_from_another_host_is_not_called_measured_again(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search()
    far = toy.ToyExecutor()
    far.capabilities = Capabilities(remote=True)
    with pytest.raises(RunError, match="on another host"):
        await measure_again(summary.run, home=tmp_path, executor=far)


async def test_a_run_without_a_result_cannot_be_measured_again(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor(wrong=lambda candidate, effort: Verdict.WRONG_RESULT)
    summary = await search(executor=executor)
    with pytest.raises(RunError, match="no result to measure again"):
        await measure_again(summary.run, home=tmp_path, executor=executor)
