"""Made-up runs: events in any order that a search may tell, for tests of what shows them."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from kernelwright.graphs.run_view import RunView, fold
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
    RunFinished,
    RunStarted,
)
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.search.summary import best_summary, status
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
from kernelwright.tools.types.run import HardwareSummary, Summary, TaskSummary

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


# The better baseline came after the only candidate had been timed in turns with the other one.
BESIDE_EAGER_ALONE = [
    baselines(whole=False),
    CandidateWritten(candidate=CANDIDATES[0], round=1),
    CandidateJudged(
        evaluation=Evaluation(
            candidate=CANDIDATES[0].id,
            verification=Verification(verdict=Verdict.CORRECT, reason="so it is"),
            screen=measurement(1.0),
            comparisons=(comparison("eager", 1.0, 1.0),),
        ),
        effort="precise",
    ),
    baselines(whole=True),
]


# Some candidates are there from the beginning, or hardly any stream would have a leader. A search
# has timed PyTorch before it judges anything; the better baseline may come later.
STREAMS = st.builds(
    lambda number, events: [
        baselines(whole=False),
        *(CandidateWritten(candidate=c, round=1) for c in CANDIDATES[:number]),
        *events,
    ],
    st.integers(0, 6),
    st.lists(EVENTS, max_size=30),
)
# A session of a search: what happens, and whether it ends with a summary at that place.
SESSIONS = st.lists(st.tuples(STREAMS, st.booleans()), min_size=1, max_size=3)


def told(drawn: list[Event]) -> list[Event]:
    """The stream as a search tells it: a beginning, growing times, and every new best at once."""
    return searched([(drawn, False)])


def searched(sessions: list[tuple[list[Event], bool]]) -> list[Event]:
    """A run of several sessions; those that end are summed up as a search sums itself up."""
    events: list[Event] = []
    view = RunView()
    for number, (drawn, ends) in enumerate(sessions):
        for event in (started(resumed=number > 0), *drawn):
            led = view.leaders[:1]
            view = fold(view, at(event, len(events)))
            events.append(at(event, len(events)))
            if view.leaders and view.leaders[:1] != led and view.best_ms:
                best = improved(view)
                view = fold(view, at(best, len(events)))
                events.append(at(best, len(events)))
        if ends:
            event = at(RunFinished(summary=summed(view)), len(events))
            view = fold(view, event)
            events.append(event)
    return events


def summed(view: RunView) -> Summary:
    """What `graphs.search` writes down of a run at that place."""
    winner = choose(view.standings)
    return Summary(
        run="r",
        task=TaskSummary(name="softmax", inputs=(), bytes=1000, flops=2000, floor_ms=0.3),
        hardware=HardwareSummary(name="Test CPU", kind="cpu"),
        status=status(winner, view.standings, view.baselines),
        baselines={},
        best=best_summary(winner, view.baselines, 0.3) if winner else None,
        candidates=view.counts,
        rounds=1,
        seconds=1.0,
    )


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
