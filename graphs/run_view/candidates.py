"""One candidate of a run as its events tell it, and how far candidates came."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kernelwright.graphs.run_view.events import Profiled
from kernelwright.tools.archive import Author, Standing
from kernelwright.tools.archive.records import EFFORTS
from kernelwright.tools.types import Candidate, Comparison, Effort, Evaluation, Verdict
from kernelwright.tools.types.run import CandidateCounts

NOT_COMPILED = frozenset({Verdict.INVALID_PLAN, Verdict.COMPILE_ERROR})


@dataclass(frozen=True)
class CandidateView:
    """One candidate of a run: the `number`th that was written, and what came of it.

    Attributes:
        standing: Its most trusted evaluation, labelled with its effort; None until it was judged.
        judged_at: When it was judged for the first time.
        profile: What the profiler read of it; None where it did not look.
        was_best: Whether it was ever told to be the fastest so far.
    """

    number: int
    candidate: Candidate
    round: int
    at: datetime
    by: Author = "coder"
    repairs: int = 0
    standing: Standing | None = None
    judged_at: datetime | None = None
    profile: Profiled | None = None
    was_best: bool = False

    @property
    def id(self) -> str:
        """The candidate's id."""
        return self.candidate.id

    @property
    def name(self) -> str:
        """What people call it: `v17`."""
        return f"v{self.number}"

    @property
    def evaluation(self) -> Evaluation | None:
        """The most trusted evaluation there is."""
        return self.standing.evaluation if self.standing else None

    @property
    def effort(self) -> Effort | None:
        """How closely its time was looked at: screen, precise or certify."""
        return self.standing.effort if self.standing else None

    @property
    def is_correct(self) -> bool:
        """Whether the judge found it correct."""
        return self.standing is not None and self.standing.evaluation.verdict is Verdict.CORRECT

    @property
    def correct_ms(self) -> float | None:
        """Its time, if it is correct and was timed."""
        return self.standing.evaluation.median_ms if self.standing and self.is_correct else None

    @property
    def slowest_comparison(self) -> Comparison | None:
        """The comparison with the baseline that is hardest to beat, None where there was none."""
        return hardest_comparison(self.evaluation) if self.evaluation else None

    def judged(self, evaluation: Evaluation, effort: Effort, at: datetime) -> "CandidateView":
        """The same candidate after another judgement; a less trusted one changes nothing."""
        known = self.standing
        if known is not None and EFFORTS.index(known.effort) > EFFORTS.index(effort):
            return self
        standing = Standing(
            number=self.number,
            candidate=self.candidate,
            round=self.round,
            author=self.by,
            effort=effort,
            evaluation=evaluation,
        )
        return replace(self, standing=standing, judged_at=self.judged_at or at)


def hardest_comparison(evaluation: Evaluation) -> Comparison | None:
    """The comparison with the baseline that is hardest to beat; None when there was none."""
    return min(evaluation.comparisons, key=lambda item: item.ratio, default=None)


def counts_of(written: int, standings: Sequence[Standing]) -> CandidateCounts:
    """How far candidates came, by the most trusted evaluation of each."""
    judged = [item.evaluation for item in standings]
    return CandidateCounts(
        written=written,
        compiled=sum(item.verdict not in NOT_COMPILED for item in judged),
        correct=sum(item.verdict is Verdict.CORRECT for item in judged),
        timed=sum(item.median_ms is not None for item in judged),
    )
