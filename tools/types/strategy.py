"""The part of a prompt that evolves: what to try on this task, in words, by generations."""

from typing import Literal

from kernelwright.tools.types.value import Value

EvolvingRole = Literal["planner", "coder"]


class StrategyVersion(Value):
    """One version of a role's strategy section.

    It is kept by the best child it produced: `agents.strategist.evolution` reads that from ledger
    and standings, through `Idea.strategy` and `Candidate.strategy`, which name the version they
    were written under.
    """

    id: str
    role: EvolvingRole
    text: str
    parent: str | None = None
    round: int = 0
    why: str = ""
