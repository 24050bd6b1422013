"""The planner: its input, its answer and its Protocol."""

from typing import Protocol

from kernelwright.agents.shared.facts import Steering
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Idea, LedgerEntry, StrategyVersion, Symptom, Value
from kernelwright.tools.types.task import Precision


class PlannerInput(Value):
    """Everything the planner may look at.

    `best` is the fastest correct candidate so far; `parents` are the elites that the archive
    offers for refinement, the best first; `standings` everything that was judged. `strategy` is
    the evolving section of a model's prompt, None where none evolves; `moves` says in words which
    moves between behaviours paid; `island` of `islands`, from 1, is the population that this
    round grows and that `parents` come from; `explanation` is what the profiler said of the best
    in words; `allow` are precisions below the task's own that the person admits. Times in
    milliseconds.
    """

    round: int
    rounds: int = 0
    wanted: int
    floor_ms: float
    baseline_ms: float | None = None
    best: Standing | None = None
    parents: tuple[Standing, ...] = ()
    tried: tuple[Idea, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    analysis: Analysis | None = None
    symptoms: tuple[Symptom, ...] = ()
    steering: Steering = Steering()
    standings: tuple[Standing, ...] = ()
    strategy: StrategyVersion | None = None
    moves: tuple[str, ...] = ()
    explanation: str = ""
    island: int = 1
    islands: int = 1
    allow: tuple[Precision, ...] = ()


class Proposal(Value):
    """Ideas in the order they should be tried, and the reasoning in plain words.

    `notes` say what went wrong on the way, a fallback to the playbook included.
    """

    ideas: tuple[Idea, ...]
    reasoning: str
    notes: tuple[str, ...] = ()


class Planner(Protocol):
    """Answers a situation with a proposal; no ideas means that nothing is left to try."""

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """Propose at most `situation.wanted` ideas, none of them tried before."""
        ...
