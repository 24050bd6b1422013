"""A recorded run with realistic numbers, kept in a real archive."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernelwright.graphs.run_view.events import (
    BaselinesMeasured,
    BestImproved,
    CandidateJudged,
    CandidateWritten,
    Critiqued,
    Event,
    IdeasProposed,
    Noted,
    Profiled,
    RoundFinished,
    RunFinished,
    RunStarted,
)
from kernelwright.graphs.search.summary import best_summary, status
from kernelwright.profiles.load import Hardware, SearchProfile, hardware_profile, search_profile
from kernelwright.tools.archive import Archive, Standing
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Analysis,
    Baseline,
    Baselines,
    Candidate,
    Claim,
    Comparison,
    Conditions,
    DType,
    Effort,
    Evaluation,
    Evidence,
    Graph,
    Idea,
    InputSpec,
    LedgerEntry,
    Measurement,
    Node,
    OutputError,
    Prediction,
    Rank,
    Ref,
    Setting,
    Symptom,
    Task,
    TensorSpec,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.run import (
    BaselineSummary,
    BestSummary,
    CandidateCounts,
    HardwareSummary,
    InputSummary,
    Summary,
    TaskSummary,
)

START = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
CONDITIONS = Conditions(
    device="Test CPU", l2_flushed=True, input_sets=3, threads=2, load_average=0.4, notes=("quiet",)
)
SOURCE = "class Model: ...  # the user's file\n"
KERNEL = """#include "kernelwright.hpp"
// tune: LANES in 8, 16
extern "C" void softmax_rows(const float* x, float* y, int rows) {
  for (int r = 0; r < rows * LANES; ++r) y[r] = x[r] < 0 ? 0 : x[r] && 1;
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("softmax_rows", args=(x, y, x.shape[0]))
    return y
"""


class Recording:
    """Everything a run says, in order, and what its archive then holds."""

    def __init__(
        self,
        name: str = "softmax",
        text: str = "keep the row in cache",
        unsure: float = 0.08,
        best_ms: float = 6.2,
        effort: Effort | None = None,
    ) -> None:
        """With an `effort` the best was looked at so closely, and the end says what follows."""
        self.text, self.unsure, self.best_ms, self.effort = text, unsure, best_ms, effort
        self.task = Task(
            name=name,
            path=f"/somewhere/{name}.py",
            source=SOURCE,
            source_sha256="0" * 64,
            entry="Model",
            entry_kind="kernelbench",
            inputs=(InputSpec(name="x", tensor=spec()),),
            outputs=(spec(),),
            graph=Graph(
                nodes=(
                    Node(name="x", op="input", out=(spec(),)),
                    Node(name="y", op="aten.exp.default", args=(Ref(node="x"),), out=(spec(),)),
                ),
                inputs=("x",),
                outputs=("y",),
            ),
            bytes_moved=33_554_432,
            flops=20_971_520,
        )
        self.hardware: Hardware = hardware_profile("generic CPU")
        self.profile: SearchProfile = search_profile("quick")
        self.first = candidate(8, "idea-1")
        self.best = candidate(16, "idea-2", parents=(self.first.id,))
        self.wrong = candidate(16, "idea-1", kernel=KERNEL.replace("&& 1", "|| 1"))
        self.ideas = (idea("idea-1", text, 5.0), idea("idea-2", "wider lanes", 4.5))
        self.at = START

    def events(self, run: str) -> list[Event]:
        """The whole run."""
        return [
            self._at(0, started(run, self.task)),
            self._at(3, BaselinesMeasured(baselines=baselines())),
            self._at(
                0.1,
                IdeasProposed(round=1, ideas=self.ideas, reasoning=f"first {self.text}"),
            ),
            self._at(0.1, CandidateWritten(round=1, candidate=self.first)),
            self._at(0.1, CandidateWritten(round=1, candidate=self.wrong)),
            self._at(1, CandidateJudged(round=1, evaluation=judged(self.first.id, 8.1))),
            self._at(1, improved(self.first, 8.1)),
            self._at(1, CandidateJudged(round=1, evaluation=wrong(self.wrong.id, self.text))),
            self._at(0.5, profiled(self.first.id)),
            self._at(0.5, Critiqued(round=1, analysis=analysis(1, self.first, self.best))),
            self._at(0, RoundFinished(round=1, best_ms=8.1, elites=1, elapsed_s=7.3)),
            self._at(0.2, CandidateWritten(round=2, candidate=self.best, by="tuner")),
            self._at(
                1,
                CandidateJudged(round=2, evaluation=self._of_best(), effort=self.effort),
            ),
            self._at(0, improved(self.best, 6.2)),
            self._at(0, Noted(round=2, words=f"a worker was replaced: {self.text}")),
            self._at(0.5, Critiqued(round=2, analysis=analysis(2, self.first, self.best))),
            self._at(
                0,
                RoundFinished(
                    round=2, best_ms=6.2, elites=2, elapsed_s=9, why_stop="nothing improved"
                ),
            ),
            self._at(1, RunFinished(round=2, summary=self._summary(run))),
        ]

    def archive(self, home: Path, *, finished: bool = True) -> str:
        """Keep the run in an archive; the run's id."""
        archive = Archive.create(
            home,
            self.task,
            policy=TracePolicy(),
            profile=self.profile,
            hardware=self.hardware,
            target="cpu",
        )
        events = self.events(archive.id)
        for event in events if finished else events[:7]:
            archive.append_event(event.kind, event.round, event.model_dump_json())
        archive.record_baselines(baselines())
        archive.record_ideas(self.ideas)
        for item, author in ((self.first, "coder"), (self.wrong, "coder"), (self.best, "tuner")):
            archive.record_candidates((item,), 1, author)
        archive.record_evaluation(judged(self.first.id, 8.1), "screen", 1)
        if finished:
            self._finish(archive)
        archive.close()
        return archive.id

    def _finish(self, archive: Archive) -> None:
        archive.record_evaluation(wrong(self.wrong.id, self.text), "screen", 1)
        archive.record_evaluation(self._of_best(), self.effort or "certify", 2)
        told = profiled(self.best.id)
        archive.record_profile(self.best.id, told.evidence, told.symptoms)
        for number, name, ms in ((1, "idea-1", 8.1), (2, "idea-2", 6.2)):
            archive.record_analysis(analysis(number, self.first, self.best))
            archive.record_ledger(
                LedgerEntry(
                    idea=name,
                    category="memory",
                    predicted_ms=5.0 / number,
                    measured_ms=ms,
                    best_before_ms=8.9,
                    candidates=2,
                    correct=1,
                    round=number,
                )
            )
        archive.record_summary(self._summary(archive.id))

    def _of_best(self) -> Evaluation:
        return judged(self.best.id, self.best_ms, self.unsure)

    def _summary(self, run: str) -> Summary:
        told = summary(run, self.task, self.best)
        if self.effort is None:
            return told
        winner = Standing(
            number=3,
            candidate=self.best,
            round=2,
            author="tuner",
            effort=self.effort,
            evaluation=self._of_best(),
        )
        found = best_summary(winner, baselines(), 3.1)
        ended = status(winner, (winner,), baselines())
        return told.model_copy(update={"status": ended, "best": found})

    def _at(self, later_s: float, event: Event) -> Event:
        self.at += timedelta(seconds=later_s)
        return event.model_copy(update={"at": self.at})


def spec() -> TensorSpec:
    return TensorSpec(shape=(2048, 2048), dtype=DType.FLOAT32)


def candidate(
    lanes: int, name: str, *, kernel: str = KERNEL, parents: tuple[str, ...] = ()
) -> Candidate:
    setting = Setting(name="LANES", value=lanes)
    return new_candidate("cpp", kernel, PLAN, settings=(setting,), idea=name, parents=parents)


def idea(name: str, title: str, predicted_ms: float) -> Idea:
    return Idea(
        id=name,
        title=title,
        mechanism="the row stays where it is",
        reason="memory is slow",
        category="memory",
        metric="bandwidth",
        predicted_ms=predicted_ms,
        round=1,
    )


def measurement(ms: float) -> Measurement:
    return Measurement(
        median_ms=ms, p10_ms=ms * 0.97, p90_ms=ms * 1.04, samples_ms=(ms,), conditions=CONDITIONS
    )


def baselines() -> Baselines:
    return Baselines(
        items=(
            Baseline(name="eager", measurement=measurement(12.4), setup_s=0.1),
            Baseline(name="compile", measurement=measurement(8.9), setup_s=11.0),
            Baseline(name="max-autotune", failure="BackendCompilerFailed: <nothing> & more"),
        )
    )


def started(run: str, task: Task) -> RunStarted:
    return RunStarted(
        run=run,
        task=task.name,
        hardware="Test CPU",
        floor_ms=3.1,
        bytes_moved=task.bytes_moved,
        flops=task.flops,
        warnings=("the output does not depend on <bias>",),
        isolation="worker process, not isolated",
    )


def judged(name: str, ms: float, unsure: float = 0.08) -> Evaluation:
    error = OutputError(
        output=0, distribution="heavy_tail", error=1.1e-7, reference_error=1e-7, error_ratio=1.13
    )
    return Evaluation(
        candidate=name,
        verification=Verification(
            verdict=Verdict.CORRECT,
            reason="within 4x of PyTorch's own error",
            error_ratio=1.13,
            errors=(error,),
            coverage=1.0,
            method="own kernels",
            precision="fp32",
            not_verified=("denormal inputs",),
        ),
        screen=measurement(ms),
        comparisons=tuple(
            Comparison(
                baseline=baseline,
                candidate_ms=ms,
                baseline_ms=of,
                ratio=of / ms,
                ci95_low=of / ms - unsure,
                ci95_high=of / ms + unsure + 0.01,
                pairs=36,
                candidate_samples_ms=(ms,),
                baseline_samples_ms=(of,),
                conditions=CONDITIONS,
            )
            for baseline, of in (("eager", 12.4), ("compile", 8.9))
        ),
    )


def wrong(name: str, text: str) -> Evaluation:
    return Evaluation(
        candidate=name,
        verification=Verification(verdict=Verdict.WRONG_RESULT, reason=f"2.0 for 1.0: {text}"),
    )


def improved(of: Candidate, ms: float) -> BestImproved:
    return BestImproved(
        round=1,
        candidate=of.id,
        idea=of.idea,
        median_ms=ms,
        best_baseline_ms=8.9,
        eager_ms=12.4,
        floor_ms=3.1,
    )


def profiled(name: str) -> Profiled:
    reading = Evidence(
        name="bandwidth_fraction", rank=Rank.DERIVED, value=0.38, unit="", source="bytes / time"
    )
    missing = Evidence(
        name="counters", rank=Rank.UNAVAILABLE, value=None, unit="", source="perf is not allowed"
    )
    symptom = Symptom(name="far from the roof", words="38 % of bandwidth", evidence=(reading,))
    return Profiled(round=1, candidate=name, evidence=(reading, missing), symptoms=(symptom,))


def profiled_busy(name: str) -> Profiled:
    """What bounds it, and before that the doubt about all of it; as older runs kept them."""
    count = Evidence(
        name="preemptions", rank=Rank.MEASURED, value=4.0, unit="a call", source="the kernel"
    )
    bound = Symptom(name="far from the roof", words="38 % of bandwidth", evidence=(count,))
    words = "4 times a call a thread lost its core: the machine is busy, and times say little"
    doubt = Symptom(name="preempted", words=words, evidence=(count,))
    return Profiled(round=2, candidate=name, evidence=(count,), symptoms=(bound, doubt))


@pytest.fixture
def busy() -> Callable[[str], Profiled]:
    """The profile of a candidate on a machine that others use."""
    return profiled_busy


def analysis(number: int, slower: Candidate, faster: Candidate) -> Analysis:
    claim = Claim(
        words="LANES=16 is 1.31x as fast as LANES=8",
        faster=faster.id,
        slower=slower.id,
        numbers=("6.2 ms", "8.1 ms"),
    )
    made = Prediction(
        words="candidates with LANES=16 have a median below 7.1 ms",
        attribute="LANES",
        value="16",
        below_ms=7.1,
        made_in_round=1,
    )
    scored = made.model_copy(update={"held": True, "measured_ms": 6.2})
    return Analysis(
        round=number,
        claims=(claim,),
        implies="wider lanes explain the gap",
        predictions=(made,) if number == 1 else (scored,),
        predictions_held=number - 1,
        predictions_checked=number - 1,
    )


def summary(run: str, task: Task, best: Candidate) -> Summary:
    return Summary(
        run=run,
        task=TaskSummary(
            name=task.name,
            inputs=(InputSummary(shape=(2048, 2048), dtype="float32"),),
            bytes=task.bytes_moved,
            flops=task.flops,
            floor_ms=3.1,
        ),
        hardware=HardwareSummary(name="Test CPU", kind="cpu"),
        status="improved",
        baselines={
            "eager": BaselineSummary(median_ms=12.4),
            "compile": BaselineSummary(median_ms=8.9),
            "max-autotune": BaselineSummary(median_ms=None, failure="BackendCompilerFailed"),
        },
        best=BestSummary(
            candidate=best.id,
            median_ms=6.2,
            speedup_vs_eager=2.0,
            speedup_vs_best_baseline=1.435,
            ci95=(1.355, 1.525),
            floor_fraction=0.5,
            error_ratio=1.13,
            coverage=1.0,
            method="own kernels",
            precision="fp32",
            verdict="correct",
        ),
        candidates=CandidateCounts(written=3, compiled=3, correct=2, timed=2),
        rounds=2,
        seconds=10.4,
        stopped_because="nothing improved",
        isolation="worker process, not isolated",
    )


@pytest.fixture
def recording() -> Callable[..., Recording]:
    """Makes recordings, of any name and with any text of an idea's."""
    return Recording


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where runs live."""
    return tmp_path / "home"


@pytest.fixture
def run(home: Path) -> str:
    """A finished run in that home."""
    return Recording().archive(home)
