"""One view of a run: whatever happens in it, everything that shows it says the same."""

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kernelwright.agents.assistant.types import Table
from kernelwright.graphs.conversation.answers import best_words, leaders_of
from kernelwright.graphs.run_view import RunView, fold, folded
from kernelwright.graphs.run_view.charts import roofline, trajectory
from kernelwright.graphs.run_view.events import (
    Awaited,
    BaselinesMeasured,
    BestImproved,
    CandidateJudged,
    CandidateWritten,
    Event,
    IdeasProposed,
    ModelCalled,
    Noted,
    RoundFinished,
    RunStarted,
)
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.run_view.wording import milliseconds, ratio
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.archive import RunRecord
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Comparison,
    Conditions,
    Evaluation,
    Idea,
    Isolation,
    Measurement,
    Setting,
    Verdict,
    Verification,
    WallKind,
)
from kernelwright.ui.chat.messages.progress import progress
from kernelwright.ui.chat.messages.roles import round_begun, round_ended
from kernelwright.ui.report.facts import verdict_rows
from kernelwright.ui.terminal.cards import leaderboard
from kernelwright.ui.terminal.progress import counts, sentence, times
from kernelwright.ui.terminal.trace import sayings

START = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
CONDITIONS = Conditions(device="Test CPU", l2_flushed=True, input_sets=3)
KERNEL = """// tune: LANES in 0, 1, 2, 3, 4, 5
extern "C" void f(const float* x, float* y, int n) { y[0] = x[0] * LANES; }
"""
PLAN = "def forward(x):\n    return x\n"
VERDICTS = (Verdict.CORRECT, Verdict.CORRECT, Verdict.WRONG_RESULT, Verdict.COMPILE_ERROR)


def candidate(number: int) -> Candidate:
    setting = Setting(name="LANES", value=number)
    idea = f"idea-{number % 3}"
    return new_candidate("cpp", KERNEL, PLAN, settings=(setting,), idea=idea)


CANDIDATES = tuple(candidate(number) for number in range(6))


def measurement(ms: float) -> Measurement:
    return Measurement(
        median_ms=ms, p10_ms=ms * 0.9, p90_ms=ms * 1.1, samples_ms=(ms,), conditions=CONDITIONS
    )


def comparison(baseline: str, ms: float, factor: float) -> Comparison:
    return Comparison(
        baseline=baseline,
        candidate_ms=ms,
        baseline_ms=factor * ms,
        ratio=factor,
        ci95_low=factor * 0.9,
        ci95_high=factor * 1.1,
        pairs=9,
        candidate_samples_ms=(ms,),
        baseline_samples_ms=(factor * ms,),
        conditions=CONDITIONS,
    )


@st.composite
def judged(draw: st.DrawFn) -> CandidateJudged:
    """Any candidate, judged at any effort, in any order, by any verdict."""
    ms, verdict = draw(st.floats(0.5, 50.0)), draw(st.sampled_from(VERDICTS))
    effort = draw(st.sampled_from(("screen", "precise", "certify", None)))
    names = {"precise": ("eager",), "certify": ("eager", "compile")}.get(effort or "", ())
    correct = verdict is Verdict.CORRECT
    factors = st.floats(0.5, 4.0)
    apart = "computes in tf32" if correct and draw(st.integers(0, 4)) == 0 else ""
    evaluation = Evaluation(
        candidate=draw(st.sampled_from(CANDIDATES)).id,
        verification=Verification(verdict=verdict, reason="so it is", apart=apart),
        screen=measurement(ms) if correct else None,
        comparisons=tuple(comparison(name, ms, draw(factors)) for name in names if correct),
    )
    return CandidateJudged(evaluation=evaluation, effort=effort)


def proposed() -> IdeasProposed:
    ideas = tuple(
        Idea(
            id=f"idea-{number}",
            title=f"title {number}",
            mechanism="it stays",
            reason="memory is slow",
            category="memory",
            metric="bandwidth",
            predicted_ms=1.0,
            round=1,
        )
        for number in range(2)
    )
    return IdeasProposed(round=1, ideas=ideas, reasoning="so")


def baselines(*, whole: bool) -> BaselinesMeasured:
    items = [Baseline(name="eager", measurement=measurement(12.4))]
    if whole:
        items.append(Baseline(name="compile", measurement=measurement(8.9)))
    return BaselinesMeasured(baselines=Baselines(items=tuple(items)))


def started(*, resumed: bool = False) -> RunStarted:
    return RunStarted(
        run="r",
        task="softmax",
        hardware="Test CPU",
        floor_ms=0.3,
        bytes_moved=1000,
        flops=2000,
        isolation=Isolation(kind=WallKind.NONE, words="none"),
        resumed=resumed,
    )


EVENTS = st.one_of(
    st.builds(CandidateWritten, candidate=st.sampled_from(CANDIDATES), round=st.integers(1, 3)),
    judged(),
    judged(),
    st.builds(proposed),
    st.builds(baselines, whole=st.booleans()),
    st.builds(Noted, words=st.text(max_size=20), round=st.integers(0, 3)),
    st.builds(ModelCalled, key=st.just("k"), role=st.just("coder")),
    st.builds(Awaited, words=st.just("answer it")),
    st.builds(started, resumed=st.just(True)),
    st.builds(RoundFinished, round=st.integers(1, 3), best_ms=st.none(), elites=st.just(1),
              elapsed_s=st.just(1.0)),
)  # fmt: skip


# Some candidates are there from the beginning, or hardly any stream would have a leader.
STREAMS = st.builds(
    lambda number, events: [*(CandidateWritten(candidate=c) for c in CANDIDATES[:number]), *events],
    st.integers(0, 6),
    st.lists(EVENTS, max_size=30),
)


def told(drawn: list[Event]) -> list[Event]:
    """The stream as a search tells it: a beginning, growing times, and every new best at once."""
    events: list[Event] = []
    view = RunView()
    for event in (started(), *drawn):
        led = view.leaders[:1]
        view = fold(view, at(event, len(events)))
        events.append(at(event, len(events)))
        if view.leaders and view.leaders[:1] != led and view.best_ms:
            best = improved(view)
            view = fold(view, at(best, len(events)))
            events.append(at(best, len(events)))
    return events


def at(event: Event, second: int) -> Event:
    return event.model_copy(update={"at": START + timedelta(seconds=second)})


def improved(view: RunView) -> BestImproved:
    assert view.best is not None
    assert view.best_ms is not None
    return BestImproved(
        candidate=view.best.id,
        idea=view.best.candidate.idea,
        median_ms=view.best_ms,
        best_baseline_ms=view.best_baseline_ms or 8.9,
        eager_ms=view.eager_ms,
        floor_ms=0.3,
    )


def finished(view: RunView) -> RoundFinished:
    return RoundFinished(round=1, best_ms=view.best_ms, elites=1, elapsed_s=1.0, at=START)


def drawn(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def story(view: RunView, events: list[Event]) -> Story:
    record = RunRecord.model_construct(id="r")
    return Story(record, Path(), tuple(events), view, (), (), {})


def rows(tables: tuple[Table, ...]) -> list[tuple[str, ...]]:
    return [row for table in tables for row in table.rows]


@settings(max_examples=60, deadline=None)
@given(STREAMS)
def test_every_presentation_says_the_same_of_the_best(stream: list[Event]) -> None:
    events = told(stream)
    view = folded(events)
    best = milliseconds(view.best_ms) if view.best else "nothing correct yet"
    chat = progress("thread", "running", view).words
    round_line = round_ended(round_begun("k", 1, START), finished(view), view)
    assert f"**best so far**: {best}" in chat.replace("\\", "")
    assert best in round_line.name
    said = [words for _, words, _ in sayings(finished(view), view, story(view, events))]
    if view.best is None:
        assert "nothing correct yet" in drawn(times(view))
        assert best_words(view) == "Nothing correct yet."
        assert not view.leaders
        return
    assert best in next(line for line in drawn(times(view)).splitlines() if "best so far" in line)
    assert f"`{view.best.id}` at {best}" in best_words(view)
    assert sentence(improved(view), view).startswith(f"best so far {best}, ")
    assert f"best {best}," in said[0]
    if view.speedup:
        assert f"{ratio(view.speedup)} the best baseline" in drawn(times(view))
        assert f"{ratio(view.speedup)} the best baseline" in chat
        assert f"{ratio(view.speedup)} the best baseline" in round_line.words
    chart, roof = trajectory(view), roofline(view, hardware_profile("generic CPU"))
    assert chart is not None
    assert chart.best[-1][1] == view.best_ms
    assert roof is not None
    rate = next(point.flops_per_s for point in roof.points if point.kind == "best")
    assert rate == pytest.approx(2e6 / view.best_ms)


@settings(max_examples=60, deadline=None)
@given(STREAMS)
def test_every_presentation_has_the_same_leaders(stream: list[Event]) -> None:
    events = told(stream)
    view = folded(events)
    leaders = [item.name for item in view.leaders]
    assert [row[0] for row in rows(leaders_of(view))] == leaders[:5]
    chat = progress("thread", "running", view).words.splitlines()
    listed = [found[1] for line in chat if (found := re.match(r"\| *(v\d+) *\|", line))]
    assert listed == leaders[:5]
    ids = [item.id for item in (*view.leaders[:10], *view.apart[:10])]
    table = leaderboard(story(view, events))
    assert list(table.columns[0].cells) == ids
    assert [item.number for item in story(view, events).leaders] == [
        int(name[1:]) for name in leaders
    ]


@settings(max_examples=60, deadline=None)
@given(STREAMS)
def test_every_presentation_counts_alike(stream: list[Event]) -> None:
    events = told(stream)
    view = folded(events)
    made, judged_ones = view.counts, len(view.standings)
    chat = progress("thread", "running", view)
    noun = "candidate" if made.written == 1 else "candidates"
    assert f"{made.written} {noun}, {made.correct} correct" in chat.words
    assert drawn(counts(view)).startswith(f"{made.written} {noun}  {made.correct} correct")
    assert f"{judged_ones} judged, {made.correct} correct" in sentence(finished(view), view)
    assert sum(number for _, number in verdict_rows(story(view, events))) == judged_ones
    assert dict(verdict_rows(story(view, events))).get("correct", 0) == made.correct
    tasks = next(sheet.content for sheet in chat.sheets if sheet.kind == "tasklist")
    ended = [one for one in json.loads(tasks)["tasks"] if one["status"] == "done" and one["forId"]]
    assert len(ended) == len(view.round_ends)


def test_a_less_trusted_look_changes_nothing() -> None:
    first = CANDIDATES[0]
    precise = Evaluation(
        candidate=first.id,
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        comparisons=(comparison("eager", 5.0, 2.0),),
    )
    screened = precise.model_copy(update={"comparisons": (), "screen": measurement(3.0)})
    view = folded(
        [
            CandidateWritten(candidate=first),
            CandidateJudged(evaluation=precise, effort="precise"),
            CandidateJudged(evaluation=screened, effort="screen"),
        ]
    )
    assert view.best is not None
    assert (view.best_ms, view.best.effort) == (5.0, "precise")


def test_a_resumed_run_has_not_ended() -> None:
    view = folded([started(), Noted(words="so"), started(resumed=True)])
    assert view.summary is None
    assert view.stage == "going on where it stopped"
    assert view.notes == ("so",)


def test_somebody_outside_is_waited_for_until_something_happens() -> None:
    waiting = folded([started(), Awaited(words="answer it"), Noted(words="still")])
    assert waiting.waiting_for == "answer it"
    assert fold(waiting, started(resumed=True)).waiting_for == ""
