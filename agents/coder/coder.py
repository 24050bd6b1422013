"""The coder: what it is asked for, what it answers with, and the Protocol of its minds."""

from typing import Protocol

from kernelwright.agents.shared.steering import Steering
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import (
    Analysis,
    Candidate,
    Evaluation,
    Idea,
    LedgerEntry,
    Setting,
    StrategyVersion,
    Symptom,
    Value,
)

Settings = tuple[Setting, ...]


class CoderRequest(Value):
    """What the coder is asked for: an idea, how many candidates, and what it may learn from.

    `written` are the candidates there are already, so that none is written twice. `parents` are
    the standings worth starting from, the best first; `attempt` counts repairs of this idea in
    this round; `strategy` is the evolving section of a model's prompt; `moves` says in words
    which moves between behaviours paid; `doubts` names the forms of the task of which results were
    refused and none was right.
    """

    idea: Idea
    count: int
    written: tuple[Candidate, ...] = ()
    analysis: Analysis | None = None
    seed: int = 0
    round: int = 0
    attempt: int = 0
    parents: tuple[Standing, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    steering: Steering = Steering()
    strategy: StrategyVersion | None = None
    moves: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class Failure(Value):
    """A candidate that did not hold, and what the judge said of it."""

    candidate: Candidate
    evaluation: Evaluation


class CoderAnswer(Value):
    """Candidates, the most promising first; `notes` say what could not be written, and why."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


class Coder(Protocol):
    """Writes candidates."""

    async def write(self, order: CoderRequest) -> CoderAnswer:
        """Write an idea down."""
        ...

    async def repair(self, order: CoderRequest, failure: Failure) -> CoderAnswer:
        """Answer a failure; no candidates means that nothing better is known."""
        ...
