"""Ideas and the candidates that implement them, with what came of them.

An idea is words before there is code; a candidate is one implementation, device code plus a plan.
Beside them stand how a candidate's plan really launched its kernels, what ideas really brought, the
critic's contrast of candidates, and the part of a prompt that evolves: what to try on this task, in
words, by generations.
"""

from typing import Annotated, Literal

from pydantic import StringConstraints

from kernelwright.tools.types.value import Value

# What the kernel source is written in, as in "cuda" or "cpp"; `tools.languages` knows which are
# there, so that a new one needs no line here.
LanguageName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Setting(Value):
    """One tunable and the value chosen for it."""

    name: str
    value: int


# How a candidate's plan is called: launch by launch, as the replay of a CUDA graph, or with its
# launches as operators of a graph whose library operators torch.compile compiles.
CallMode = Literal["eager", "graph", "compile"]
IN_MODE: dict[CallMode, str] = {
    "eager": "",
    "graph": ", as the replay of a CUDA graph",
    "compile": ", inside torch.compile",
}


class Candidate(Value):
    """One implementation of a task.

    `kernel` declares its tunables (`// tune: THREADS in 128, 256`) and requirements
    (`// require: THREADS * VECTOR <= 4096`) in comments; `settings` are the values chosen, the
    first declared value standing in for any that is missing. `plan` is the host side in the
    subset of Python that `tools.candidates` validates. `id` is a hash of what runs: language,
    kernel, plan, settings and mode. `strategy` names the version of the evolving prompt under which
    a model wrote it.
    """

    id: str
    language: LanguageName
    kernel: str
    plan: str
    settings: tuple[Setting, ...] = ()
    idea: str = ""
    parents: tuple[str, ...] = ()
    origin: Literal["playbook", "model", "person"] = "playbook"
    strategies: tuple[str, ...] = ()
    note: str = ""
    strategy: str = ""
    mode: CallMode = "eager"


Extents = tuple[int, int, int]


class LaunchShape(Value):
    """One configuration of a kernel in a call: extents in x, y, z, and dynamic shared memory.

    `grid` counts blocks, clusters or not. `launches` says how often a call launches it so. A C++
    kernel has no geometry; then all extents are 1.
    """

    kernel: str
    grid: Extents = (1, 1, 1)
    block: Extents = (1, 1, 1)
    cluster: Extents = (1, 1, 1)
    shared_bytes: int = 0
    launches: int = 1

    @property
    def blocks(self) -> int:
        """Blocks of one launch."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


def dynamic_bytes(kernel: str, launches: tuple[LaunchShape, ...]) -> int:
    """The most dynamic shared memory that a kernel was launched with."""
    return max((shape.shared_bytes for shape in launches if shape.kernel == kernel), default=0)


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
    candidate, or every kernel once, by its fastest settings. `held` is None until checked, and
    stays so beside a `measured_ms` where the noise left the outcome undecided.
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


# What failed twice and never held, or never helped, is believed no longer.
DISTRUSTED = 1 / 3


class AdviceScore(Value):
    """What became of the advice of one round, among candidates written after it.

    `followed` have more of what was preferred than of what was advised against, `others` the rest;
    faster means faster than the best before, beyond the noise. `helped` is None where nobody
    followed, or the two did not differ.
    """

    round: int
    followed: int
    followed_faster: int
    others: int
    others_faster: int
    helped: bool | None = None

    @property
    def words(self) -> str:
        """`advice of round 1: 2 of 3 that followed it beat the best before, 0 of 4 others`."""
        if not self.followed:
            return f"advice of round {self.round}: nobody followed it"
        return (
            f"advice of round {self.round}: {self.followed_faster} of {self.followed} that followed"
            f" it beat the best before, {self.others_faster} of {self.others} others"
        )


class Analysis(Value):
    """The critic's contrast of one round: what explains the gap, what follows, what to try next.

    Of all rounds, so many predictions were checked and held, and so many undecided, which are not
    among the checked. `advice` says whether what the analysis before it advised helped, and
    `advice_trust` how far advice is heeded from now on: 1 until it failed to help, towards 0.
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
    predictions_undecided: int = 0
    advice: AdviceScore | None = None
    advice_trust: float = 1.0
    origin: str = "playbook"
    notes: tuple[str, ...] = ()

    @property
    def heeded(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What settings are chosen by, preferred and avoided; nothing once it never helps."""
        return (self.prefer, self.avoid) if self.advice_trust > DISTRUSTED else ((), ())


EvolvingRole = Literal["planner", "coder"]


class StrategyVersion(Value):
    """One version of a role's strategy section.

    It is kept by the best child it produced: `agents.strategist.strategist` reads that from ledger
    and standings, through `Idea.strategy` and `Candidate.strategy`, which name the version they
    were written under.
    """

    id: str
    role: EvolvingRole
    text: str
    parent: str | None = None
    round: int = 0
    why: str = ""
