"""Ideas before code, what they really brought, and the critic's contrast of candidates.

The part of a prompt that evolves: what to try on this task, in words, by generations.
"""

from typing import Literal

from kernelwright.tools.types.value import Value


class Idea(Value):
    """One optimisation in plain words.

    `recipe` is for the mind that wrote it (the playbook keeps the strategy it would emit there);
    nobody else reads it. `predicted_ms` comes from the roofline and the ledger, or from
    the model that wrote the idea; `hopeful_ms` is the least time that its writer thinks possible.
    `strategy` names the version of the planner's evolving prompt.
    """

    id: str
    title: str
    mechanism: str
    reason: str
    category: str
    metric: str
    predicted_ms: float | None = None
    hopeful_ms: float | None = None
    risk: str = ""
    round: int = 0
    recipe: str = ""
    origin: str = "playbook"
    parent: str | None = None
    strategy: str = ""


class LedgerEntry(Value):
    """What an idea really did: the best candidate it led to, against the best before it."""

    idea: str
    category: str
    predicted_ms: float | None
    measured_ms: float | None
    best_before_ms: float | None
    candidates: int
    correct: int
    round: int

    @property
    def gain(self) -> float | None:
        """Best time before / time it reached; above 1 is an improvement. None if nothing ran."""
        if self.measured_ms is None or self.best_before_ms is None:
            return None
        return self.best_before_ms / self.measured_ms


class Claim(Value):
    """A difference between fast and slow candidates and the numbers that show it."""

    words: str
    faster: str
    slower: str
    numbers: tuple[str, ...]


class Prediction(Value):
    """What should happen if the analysis is right; scored one round later.

    The claim is that candidates whose `attribute` equals `value` have a median time below
    `below_ms`; and, where a `metric` is named, that their median of that reading goes from
    `metric_from` towards `metric_to`, at least half of the way. `of` says who counts: every
    candidate, or every kernel once, by its fastest settings. `held` is None until checked.
    """

    words: str
    attribute: str
    value: str
    below_ms: float
    made_in_round: int
    held: bool | None = None
    measured_ms: float | None = None
    metric: str = ""
    metric_from: float | None = None
    metric_to: float | None = None
    metric_measured: float | None = None
    of: Literal["candidates", "kernels"] = "candidates"


class Analysis(Value):
    """The critic's contrast of one round: what explains the gap, what follows, what to try next.

    `notes` say what of a model's answer was left out because the numbers did not bear it out, and
    whether the playbook had to stand in.
    """

    round: int
    claims: tuple[Claim, ...]
    implies: str
    prefer: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    predictions_held: int = 0
    predictions_checked: int = 0
    origin: str = "playbook"
    notes: tuple[str, ...] = ()


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
