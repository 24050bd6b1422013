"""The strategist: rewrites the evolving section of the planner's or the coder's prompt.

It looks at what every version brought and answers with the next one. There is no playbook behind
it: without a model nothing evolves and nothing is asked.
"""

from typing import Protocol

from kernelwright.tools.types import Analysis, EvolvingRole, StrategyVersion, Value


class Trial(Value):
    """A version and what its children did.

    `best` is the id of the fastest correct child, "" when there is none; `rank` its place among all
    candidates of the run, 0 for the best. Times in milliseconds.
    """

    version: StrategyVersion
    children: int = 0
    correct: int = 0
    best: str = ""
    best_ms: float | None = None
    rank: int | None = None


class StrategistInput(Value):
    """Everything the strategist may look at.

    `parent` is the version to rewrite, the fittest so far; `trials` are all versions in the order
    they were born. `outcomes` and `moves` are lines in plain words: what was tried under the
    recent versions and what came of it, and which moves between behaviours paid.
    """

    role: EvolvingRole
    round: int
    parent: StrategyVersion
    trials: tuple[Trial, ...]
    outcomes: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    analysis: Analysis | None = None


class StrategistAnswer(Value):
    """The next version, None where there is none; `notes` say why."""

    version: StrategyVersion | None = None
    notes: tuple[str, ...] = ()


class Strategist(Protocol):
    """Rewrites a section against its outcomes."""

    async def rewrite(self, retrospect: StrategistInput) -> StrategistAnswer:
        """Answer with a version that differs from all before it."""
        ...
