"""What is known of a running search, folded from its events one by one."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from graphs.events import (
    Awaited,
    BaselinesMeasured,
    BestImproved,
    CandidateJudged,
    CandidateWritten,
    Critiqued,
    Event,
    IdeasProposed,
    ModelCalled,
    Noted,
    Profiled,
    RoleAnswered,
    RoundFinished,
    RunFinished,
    RunStarted,
    StrategyEvolved,
)
from tools.nouns import Baselines, Verdict
from tools.nouns.run import Summary, TokenCounts
from ui.words import one_line


@dataclass
class Best:
    """The fastest correct candidate so far."""

    candidate: str
    idea: str
    median_ms: float


@dataclass
class Board:
    """The state of a search as its events tell it; times of day in UTC."""

    run: str = ""
    task: str = ""
    hardware: str = ""
    isolation: str = ""
    floor_ms: float | None = None
    started: datetime | None = None
    latest: datetime | None = None
    round: int = 0
    stage: str = "reading the task"
    idea: str = ""
    baselines: Baselines | None = None
    best: Best | None = None
    written: int = 0
    by_verdict: Counter[Verdict] = field(default_factory=Counter)
    judged: set[str] = field(default_factory=set)
    ideas: dict[str, str] = field(default_factory=dict)
    idea_of: dict[str, str] = field(default_factory=dict)
    trail_ms: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    questions: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)
    usd: float | None = None
    finished: Summary | None = None

    @property
    def best_baseline_ms(self) -> float | None:
        """The time to beat."""
        try:
            best = self.baselines.best if self.baselines else None
        except LookupError:
            return None
        return best.measurement.median_ms if best and best.measurement else None

    @property
    def eager_ms(self) -> float | None:
        """What PyTorch takes as it comes."""
        eager = self.baselines.named("eager") if self.baselines else None
        return eager.measurement.median_ms if eager and eager.measurement else None

    @property
    def speedup(self) -> float | None:
        """Of the best so far, over the best baseline."""
        base = self.best_baseline_ms
        return base / self.best.median_ms if base and self.best else None

    @property
    def elapsed_s(self) -> float:
        """Seconds between the first and the latest event."""
        if self.started is None or self.latest is None:
            return 0.0
        return (self.latest - self.started).total_seconds()

    def fold(self, event: Event) -> None:
        """Take in one event."""
        self.started = self.started or event.at
        self.latest = event.at
        self.round = max(self.round, event.round)
        match event:
            case RunStarted():
                self._begin(event)
            case BaselinesMeasured():
                self.baselines, self.stage = event.baselines, "thinking of ideas"
            case IdeasProposed():
                self.ideas |= {idea.id: one_line(idea.title) for idea in event.ideas}
                self.stage = "writing kernels"
                self.idea = one_line(event.ideas[0].title) if event.ideas else ""
            case CandidateWritten():
                self._written(event)
            case CandidateJudged():
                self._judged(event)
            case BestImproved():
                self.best = Best(event.candidate, self.title(event.idea), event.median_ms)
                self.trail_ms.append(event.median_ms)
            case Profiled():
                self.stage = "asking what bounds the best"
            case Critiqued():
                self.stage = "contrasting fast and slow"
            case RoundFinished():
                self.stage = "certifying the best" if event.why_stop else "thinking of ideas"
            case ModelCalled():
                self._asked(event)
            case RoleAnswered():
                self.stage = f"asking the {event.role}"
            case StrategyEvolved():
                self.stage = f"rewriting what the {event.version.role} is told"
            case Awaited():
                self.stage = "waiting for somebody outside"
            case Noted():
                self.notes.append(one_line(event.words, 200))
            case RunFinished():
                self.finished, self.stage = event.summary, "finished"

    def recall(self, events: Iterable[Event]) -> None:
        """Take in what earlier sessions told; the clock begins with this one."""
        for event in events:
            self.fold(event)
        self.started = self.latest = self.finished = None

    def title(self, idea: str) -> str:
        """An idea in words; what it is called where it was never proposed."""
        return self.ideas.get(idea, idea)

    def _begin(self, event: RunStarted) -> None:
        self.run, self.task, self.hardware = event.run, event.task, event.hardware
        self.isolation, self.floor_ms = event.isolation.words, event.floor_ms
        self.stage = "timing PyTorch"
        if event.resumed:
            self.stage = "going on where it stopped"

    def _written(self, event: CandidateWritten) -> None:
        self.written += 1
        self.stage = {
            "coder": "writing kernels",
            "tuner": "tuning the best",
            "repair": "repairing a candidate",
        }[event.by]
        self.idea_of[event.candidate.id] = event.candidate.idea
        self.idea = self.title(event.candidate.idea)

    def _judged(self, event: CandidateJudged) -> None:
        name = event.evaluation.candidate
        self.stage = "judging candidates"
        self.idea = self.title(self.idea_of.get(name, "")) or self.idea
        if name not in self.judged:  # the promising are judged again, more precisely
            self.judged.add(name)
            self.by_verdict[event.evaluation.verdict] += 1

    def _asked(self, event: ModelCalled) -> None:
        self.questions += 1
        self.stage = f"the {event.role} thinks with {one_line(event.model or 'a model', 40)}"
        self.tokens = TokenCounts(
            input=self.tokens.input + event.tokens.input,
            output=self.tokens.output + event.tokens.output,
        )
        if event.usd is not None:
            self.usd = (self.usd or 0.0) + event.usd
