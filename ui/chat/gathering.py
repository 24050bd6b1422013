"""What is known of a run from its events so far: ideas, candidates in order, times, baselines."""

import re
from dataclasses import dataclass, field
from datetime import datetime

from graphs.events import (
    BaselinesMeasured,
    BestImproved,
    CandidateJudged,
    CandidateWritten,
    Event,
    IdeasProposed,
    Profiled,
    RoundFinished,
    RunStarted,
)
from tools.nouns import Baselines, Candidate, Evaluation, Idea, Verdict

_ID = re.compile(r"\b[0-9a-f]{12}\b")


@dataclass
class Tried:
    """One candidate: the `number`th that was written, and what came of it."""

    number: int
    candidate: Candidate
    round: int
    at: datetime
    by: str = "coder"
    repairs: int = 0
    evaluation: Evaluation | None = None
    judged_at: datetime | None = None
    profile: Profiled | None = None
    was_best: bool = False

    @property
    def name(self) -> str:
        """What people call it: `v17`."""
        return f"v{self.number}"

    @property
    def correct_ms(self) -> float | None:
        """Its time, if it is correct and was timed."""
        found = self.evaluation
        return found.median_ms if found and found.verdict is Verdict.CORRECT else None


@dataclass
class Gathered:
    """A run as its events tell it so far."""

    begun: datetime | None = None
    floor_ms: float | None = None
    bytes_moved: int = 0
    flops: int = 0
    baselines: Baselines | None = None
    ideas: dict[str, Idea] = field(default_factory=dict)
    tried: dict[str, Tried] = field(default_factory=dict)
    round_ends: dict[int, datetime] = field(default_factory=dict)
    best: str = ""

    @property
    def best_baseline_ms(self) -> float | None:
        """The time to beat."""
        try:
            best = self.baselines.best if self.baselines else None
        except LookupError:
            return None
        return best.measurement.median_ms if best and best.measurement else None

    @property
    def leaders(self) -> tuple[Tried, ...]:
        """Correct candidates, the fastest first."""
        timed = [item for item in self.tried.values() if item.correct_ms is not None]
        return tuple(sorted(timed, key=lambda item: item.correct_ms or 0.0))

    def of_idea(self, idea: str) -> tuple[Tried, ...]:
        """What was written for an idea, in order."""
        return tuple(item for item in self.tried.values() if item.candidate.idea == idea)

    def name_of(self, candidate: str) -> str:
        """What people call a candidate; its id where it is not known."""
        found = self.tried.get(candidate)
        return found.name if found else candidate

    def spoken(self, words: str) -> str:
        """Words in which candidates have the names that people use."""
        return _ID.sub(lambda found: self.name_of(found.group()), words)

    def take(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case RunStarted():
                self.begun = self.begun or event.at
                self.floor_ms = event.floor_ms
                self.bytes_moved, self.flops = event.bytes_moved, event.flops
            case BaselinesMeasured():
                self.baselines = event.baselines
            case IdeasProposed():
                self.ideas |= {idea.id: idea for idea in event.ideas}
            case CandidateWritten():
                self._written(event)
            case CandidateJudged():
                self._judged(event)
            case Profiled():
                if event.candidate in self.tried:
                    self.tried[event.candidate].profile = event
            case BestImproved():
                self.best = event.candidate
                if event.candidate in self.tried:
                    self.tried[event.candidate].was_best = True
            case RoundFinished():
                self.round_ends[event.round] = event.at

    def _written(self, event: CandidateWritten) -> None:
        name = event.candidate.id
        if name not in self.tried:
            number = len(self.tried) + 1
            self.tried[name] = Tried(
                number, event.candidate, event.round, event.at, event.by, event.repairs
            )

    def _judged(self, event: CandidateJudged) -> None:
        tried = self.tried.get(event.evaluation.candidate)
        if tried is not None:
            tried.evaluation = event.evaluation
            tried.judged_at = tried.judged_at or event.at
