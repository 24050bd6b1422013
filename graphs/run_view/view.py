"""What a run looks like after the events so far: the one value that every presentation reads.

Each candidate is there as its events tell it, with how far it came.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from kernelwright.graphs.run_view.events import IdeasProposed, Profiled, one_line
from kernelwright.graphs.run_view.figures import (
    LABEL_OF,
    Figure,
    figure_of,
    headline,
    in_order,
    in_words,
    legend,
)
from kernelwright.tools.archive import Author, Standing, apart
from kernelwright.tools.archive.database import EFFORTS
from kernelwright.tools.types import (
    Analysis,
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Idea,
    Isolation,
    Prediction,
    Verdict,
    WallKind,
)
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.run import CandidateCounts, Summary, TokenCounts
from kernelwright.tools.types.speed_words import BRIEF

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


def counts_of(written: int, standings: Sequence[Standing]) -> CandidateCounts:
    """How far candidates came, by the most trusted evaluation of each."""
    judged = [item.evaluation for item in standings]
    return CandidateCounts(
        written=written,
        compiled=sum(item.verdict not in NOT_COMPILED for item in judged),
        correct=sum(item.verdict is Verdict.CORRECT for item in judged),
        timed=sum(item.median_ms is not None for item in judged),
    )


LEADER_COLUMNS = ("leaders", "time", "vs best baseline", "idea")


def leader_rows(view: "RunView", limit: int) -> tuple[tuple[str, str, str, str], ...]:
    """The leaders as chat and answers list them, by `LEADER_COLUMNS`, the best first."""
    return tuple(
        (
            item.name,
            figure.time,
            figure.over_briefly or "-",
            one_line(view.with_names(view.title(item.candidate.idea)), 60),
        )
        for item in view.leaders[:limit]
        if (figure := view.figure_of(item)) is not None
    )


UNKNOWN_ISOLATION = Isolation(kind=WallKind.UNKNOWN, words="unknown")
_CANDIDATE_ID = re.compile(r"\b[0-9a-f]{12}\b")


@dataclass(frozen=True)
class RunView:
    """A run as its events tell it so far; times of day in UTC.

    Attributes:
        begun: The first event's time.
        watched_from: From when `elapsed_s` counts: the first event since `in_new_session`.
        stage: What is being done, in words.
        idea: Id of the idea that is being worked on.
        candidates: By id, in order of writing.
        round_ends: When each round ended.
        notes: Plain sentences that were worth keeping, each on a line.
        questions: How often a language model was asked.
        usd: What the questions cost; None where no price is known.
        stopped_because: Why the search stops; empty while it goes on.
        waiting_for: What somebody outside is to do; empty while nobody is waited for.
        certifying: Whether this session's search is over and its finalists are looked at closely.
        regions: Of a large model, the most promising first; () where a module is searched as one.
        summary: What the search amounted to; None while it goes on.
    """

    run: str = ""
    task: str = ""
    hardware: str = ""
    isolation: Isolation = UNKNOWN_ISOLATION
    warnings: tuple[str, ...] = ()
    floor_ms: float | None = None
    floor_how: str = ""
    bytes_moved: int = 0
    flops: int = 0
    begun: datetime | None = None
    watched_from: datetime | None = None
    latest: datetime | None = None
    round: int = 0
    stage: str = "reading the task"
    idea: str = ""
    baselines: Baselines | None = None
    ideas: Mapping[str, Idea] = field(default_factory=dict)
    proposals: tuple[IdeasProposed, ...] = ()
    candidates: Mapping[str, CandidateView] = field(default_factory=dict)
    round_ends: Mapping[int, datetime] = field(default_factory=dict)
    analyses: tuple[Analysis, ...] = ()
    notes: tuple[str, ...] = ()
    questions: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)
    usd: float | None = None
    stopped_because: str = ""
    waiting_for: str = ""
    certifying: bool = False
    regions: tuple[RegionShown, ...] = ()
    summary: Summary | None = None

    @property
    def best_baseline_ms(self) -> float | None:
        """The time to beat."""
        name = self._best_baseline
        found = self.baselines.named(name) if self.baselines and name else None
        return found.measurement.median_ms if found and found.measurement else None

    @property
    def eager_ms(self) -> float | None:
        """What PyTorch takes as it comes."""
        eager = self.baselines.named("eager") if self.baselines else None
        return eager.measurement.median_ms if eager and eager.measurement else None

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """Every judged candidate with its most trusted evaluation, in order of writing."""
        found = (item.standing for item in self.candidates.values())
        return tuple(item for item in found if item is not None)

    @cached_property
    def leaders(self) -> tuple[CandidateView, ...]:
        """Correct candidates with a time: the best, then the others, the fastest first.

        While it goes on they stand as the search ranks them. Once certification began, what is
        certified comes first; in the end the one that the summary stands for.
        """
        ended = self.certifying or self.summary is not None
        ordered = in_order(self.standings, certified_first=ended)
        chosen = self.summary.best.candidate if self.summary and self.summary.best else ""
        ordered.sort(key=lambda item: item.candidate.id != chosen)
        return tuple(self.candidates[item.candidate.id] for item in ordered)

    @cached_property
    def apart(self) -> tuple[CandidateView, ...]:
        """Correct candidates that compute in less than the task asks, in an order of their own."""
        return tuple(self.candidates[item.candidate.id] for item in apart(self.standings))

    @property
    def best(self) -> CandidateView | None:
        """The first of the leaders, for everybody who shows a best."""
        return next(iter(self.leaders), None)

    @property
    def best_name(self) -> str:
        """What the best is called: `best so far`, and `best` once the search is over."""
        return "best" if self.summary is not None else "best so far"

    @property
    def best_figure(self) -> Figure | None:
        """The figures in force: those of the best."""
        return self.figure_of(self.best) if self.best else None

    @property
    def best_words(self) -> str:
        """Its time and ratio; once the search is over what keeps them from being a gain, too."""
        words = self.best_figure.words if self.best_figure else ""
        ended = BRIEF.get(self.summary.status, "") if self.summary else ""
        return f"{words}; {ended}" if words and ended and ended not in words else words

    @property
    def best_ms(self) -> float | None:
        """Time of the best."""
        return self.best_figure.ms if self.best_figure else None

    @property
    def headline(self) -> str:
        """What the search amounts to, in a line; what is being done while it goes on."""
        return headline(self.best_figure, self.summary.status) if self.summary else self.stage

    @property
    def floor_fraction(self) -> float | None:
        """How much of the floor the best reaches."""
        return self.floor_ms / self.best_ms if self.floor_ms and self.best_ms else None

    @property
    def profiler_words(self) -> str:
        """The profiler's most important sentence, with the candidate it is about; "" for none.

        What casts doubt on the times of the latest round comes first, as it is about all of them;
        then what bounds the best, or else the last one that was looked at.
        """
        told = [item.profile for item in self.candidates.values() if item.profile]
        latest = max((item.round for item in told), default=0)
        best = [self.best.profile] if self.best and self.best.profile else []
        doubts = [item for item in (*best, *told) if item.is_in_doubt and item.round == latest]
        chosen = next(iter((*doubts, *best, *reversed(told))), None)
        if chosen is None or not chosen.headline:
            return ""
        return f"{self.name_of(chosen.candidate)}: {chosen.headline}"

    @cached_property
    def by_verdict(self) -> Counter[Verdict]:
        """How many candidates got which verdict."""
        return Counter(item.evaluation.verdict for item in self.standings)

    @cached_property
    def counts(self) -> CandidateCounts:
        """How many candidates were written, compiled, correct and timed."""
        return counts_of(len(self.candidates), self.standings)

    @property
    def elapsed_s(self) -> float:
        """Seconds between the first event that was watched and the latest."""
        if self.watched_from is None or self.latest is None:
            return 0.0
        return (self.latest - self.watched_from).total_seconds()

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Every prediction of the critic's once, scored where it was scored later."""
        known: dict[tuple[int, str], Prediction] = {}
        for item in (item for analysis in self.analyses for item in analysis.predictions):
            key = (item.made_in_round, item.words)
            if key not in known or item.measured_ms is not None or item.held is not None:
                known[key] = item
        return tuple(known.values())

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds in which ideas were proposed."""
        return tuple(event.round for event in self.proposals)

    def legend(self, limit: int) -> str:
        """What the labels of the first of the leaders mean."""
        return legend(LABEL_OF[item.effort] for item in self.leaders[:limit] if item.effort)

    def figure_of(self, item: CandidateView) -> Figure | None:
        """A candidate's figures with their label; None where it is not correct or not timed."""
        if item.standing is None:
            return None
        return figure_of(item.standing.evaluation, item.standing.effort, self.baselines)

    def of_idea(self, idea: str) -> tuple[CandidateView, ...]:
        """What was written for an idea, in order."""
        return tuple(item for item in self.candidates.values() if item.candidate.idea == idea)

    def of_round(self, number: int) -> tuple[CandidateView, ...]:
        """What was written in a round, in order."""
        return tuple(item for item in self.candidates.values() if item.round == number)

    def best_of(self, items: Sequence[CandidateView]) -> CandidateView | None:
        """The fastest correct one of some candidates, those of lower precision last."""
        wanted = {item.id for item in items}
        return next((item for item in (*self.leaders, *self.apart) if item.id in wanted), None)

    def seconds_at(self, at: datetime) -> float:
        """Seconds from the run's beginning to a time of day."""
        return (at - self.begun).total_seconds() if self.begun else 0.0

    def title(self, idea: str) -> str:
        """An idea in words; its id where it was never proposed."""
        found = self.ideas.get(idea)
        return found.title if found else idea or "-"

    @property
    def idea_title(self) -> str:
        """The idea that is being worked on, in words; empty where there is none."""
        return self.title(self.idea) if self.idea else ""

    def name_of(self, candidate: str) -> str:
        """What people call a candidate; its id where it is not known."""
        found = self.candidates.get(candidate)
        return found.name if found else candidate

    def with_names(self, words: str) -> str:
        """Words in which candidates and settings have the names that people use."""
        return in_words(_CANDIDATE_ID.sub(lambda found: self.name_of(found.group()), words))

    def in_new_session(self) -> "RunView":
        """What earlier sessions told; the clock begins with the next event."""
        return replace(self, watched_from=None, latest=None, summary=None)

    @property
    def _best_baseline(self) -> str:
        try:
            return self.baselines.best.name if self.baselines else ""
        except LookupError:
            return ""
