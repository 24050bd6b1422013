"""Everything a person can be shown, as typed events. The UI decides how each one looks.

Events are written to the archive in order and replayed by `trace` and `report`; a UI that
attaches late reads them from there.

What models are writing right now is shown meanwhile and never kept. It is written on the loop of a
search and read on that of a page. The complete answer is kept with the call that asked for it, and
told as an event.
"""

import threading
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.tools.types import (
    Analysis,
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Evidence,
    Idea,
    Isolation,
    Prompt,
    RoleName,
    StrategyVersion,
    Symptom,
    Value,
)
from kernelwright.tools.types.run import Summary, TokenCounts


class _Event(Value):
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    round: int = 0


class RunStarted(_Event):
    """The task was understood and a search over it begins (or goes on, when `resumed`)."""

    kind: Literal["run_started"] = "run_started"
    run: str
    task: str
    hardware: str
    floor_ms: float
    bytes_moved: int
    flops: int
    warnings: tuple[str, ...] = ()
    isolation: Isolation
    resumed: bool = False


class BaselinesMeasured(_Event):
    """What PyTorch itself does was timed.

    `seconds` is what that took of the run, which is none of the search's budget; 0 where it was
    not written down.
    """

    kind: Literal["baselines_measured"] = "baselines_measured"
    baselines: Baselines
    seconds: float = 0.0


class IdeasProposed(_Event):
    """The planner spoke: ideas of this round, and in `reasoning` why these and in this order."""

    kind: Literal["ideas_proposed"] = "ideas_proposed"
    ideas: tuple[Idea, ...]
    reasoning: str


class CandidateWritten(_Event):
    """The coder (or the tuner, by new settings) wrote a candidate; `repairs` counts attempts."""

    kind: Literal["candidate_written"] = "candidate_written"
    candidate: Candidate
    by: Literal["coder", "tuner", "repair"] = "coder"
    repairs: int = 0


class CandidateJudged(_Event):
    """A candidate came back from the judge; `effort` is None where it was not written down."""

    kind: Literal["candidate_judged"] = "candidate_judged"
    evaluation: Evaluation
    effort: Effort | None = None


class BestImproved(_Event):
    """A correct candidate is faster than everything before it."""

    kind: Literal["best_improved"] = "best_improved"
    candidate: str
    idea: str
    median_ms: float
    best_baseline_ms: float
    eager_ms: float | None
    floor_ms: float


class Profiled(_Event):
    """The profiler read what bounds a candidate."""

    kind: Literal["profiled"] = "profiled"
    candidate: str
    evidence: tuple[Evidence, ...]
    symptoms: tuple[Symptom, ...]
    explanation: str = ""


class Critiqued(_Event):
    """The critic contrasted candidates."""

    kind: Literal["critiqued"] = "critiqued"
    analysis: Analysis


class ModelCalled(_Event):
    """A language model was asked; `key` finds prompt and answer in the archive's calls."""

    kind: Literal["model_called"] = "model_called"
    key: str
    role: RoleName
    model: str = ""
    tokens: TokenCounts = TokenCounts()
    usd: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    reasoning: str = ""
    failure: str = ""


class RoleAnswered(_Event):
    """A role with a step of its own was asked: its words, and its whole answer as JSON."""

    kind: Literal["role_answered"] = "role_answered"
    role: RoleName
    words: str
    answer: str


class StrategyEvolved(_Event):
    """A role's evolving prompt has a new version, or an older one came back."""

    kind: Literal["strategy_evolved"] = "strategy_evolved"
    version: StrategyVersion
    before: str = ""


class Awaited(_Event):
    """The run paused for somebody outside; a resume goes on once `paths` are there."""

    kind: Literal["awaited"] = "awaited"
    words: str
    paths: tuple[str, ...] = ()


class RoundFinished(_Event):
    """A round ended; `why_stop` is empty while the search goes on."""

    kind: Literal["round_finished"] = "round_finished"
    best_ms: float | None
    elites: int
    elapsed_s: float
    why_stop: str = ""


class Noted(_Event):
    """A plain sentence worth keeping: a fallback, a retry, a worker that was replaced."""

    kind: Literal["noted"] = "noted"
    words: str


class RunFinished(_Event):
    """The search is over; nothing follows but a resume or an export."""

    kind: Literal["run_finished"] = "run_finished"
    summary: Summary


Event = Annotated[
    RunStarted
    | BaselinesMeasured
    | IdeasProposed
    | CandidateWritten
    | CandidateJudged
    | BestImproved
    | Profiled
    | Critiqued
    | ModelCalled
    | RoleAnswered
    | StrategyEvolved
    | Awaited
    | RoundFinished
    | Noted
    | RunFinished,
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


# Of one answer this much is shown while it comes; the event behind it knows where all of it is.
LONGEST = 60_000


class Speech(Value):
    """An answer in the making.

    `text` is all of it so far, thinking included. `ended` is true once: the answer is complete, or
    there will be none, and its event tells the rest.
    """

    key: str
    role: RoleName
    round: int
    text: str
    ended: bool = False


class Speeches:
    """The answers of one search that are in the making; any thread may say and read."""

    def __init__(self) -> None:
        self._speaking: dict[str, tuple[Prompt, list[str], int]] = {}
        self._lock = threading.Lock()

    def hear(self, prompt: Prompt, piece: str) -> None:
        """Take in a piece; an empty one begins the answer anew."""
        with self._lock:
            _, pieces, length = self._speaking.get(prompt.key, (prompt, [], 0))
            if not piece:
                pieces, length = [], 0
            elif length < LONGEST:
                pieces.append(piece[: LONGEST - length])
            self._speaking[prompt.key] = (prompt, pieces, length + len(piece))

    def end(self, key: str) -> None:
        """Nothing more will be said under that key."""
        with self._lock:
            self._speaking.pop(key, None)

    def clear(self) -> None:
        """Nobody says anything any more."""
        with self._lock:
            self._speaking.clear()

    def now(self) -> tuple[Speech, ...]:
        """Everything that is being said, in the order in which it began."""
        with self._lock:
            return tuple(
                Speech(key=key, role=prompt.role, round=prompt.round, text="".join(pieces))
                for key, (prompt, pieces, _) in self._speaking.items()
            )
