"""What a whole search amounts to: the object that `optimize --json` prints."""

from typing import Literal

from kernelwright.tools.types.measurement import Outcome, Phase
from kernelwright.tools.types.value import Value
from kernelwright.tools.types.verdict import NOT_ISOLATED, Isolation

Status = Literal[
    "improved",
    "faster_than_eager",
    "no_improvement",
    "nothing_correct",
    "stopped",
    "waiting",
    "failed",
]


class InputSummary(Value):
    """Shape and type of one input."""

    shape: tuple[int, ...]
    dtype: str


class TaskSummary(Value):
    """The task in figures; `floor_ms` on the hardware beside it."""

    name: str
    inputs: tuple[InputSummary, ...]
    bytes: int
    flops: int
    floor_ms: float


class HardwareSummary(Value):
    """The device that everything was measured on."""

    name: str
    kind: str


class BaselineSummary(Value):
    """One baseline; None when it could not run, and why."""

    median_ms: float | None
    failure: str = ""


class BestSummary(Value):
    """The best candidate that is correct; ratios are baseline / candidate.

    `outcome` is what may be said of it beside the best baseline; "" in runs that were recorded
    before it was.
    """

    candidate: str
    median_ms: float
    speedup_vs_eager: float | None
    speedup_vs_best_baseline: float
    ci95: tuple[float, float]
    floor_fraction: float | None
    error_ratio: float | None
    coverage: float | None
    method: str
    precision: str
    verdict: str
    outcome: Outcome | Literal[""] = ""


class CandidateCounts(Value):
    """How many candidates reached each rung of the ladder."""

    written: int
    compiled: int
    correct: int
    timed: int


class TokenCounts(Value):
    """Language model tokens; 0 with the playbook."""

    input: int = 0
    output: int = 0


class Summary(Value):
    """One search, for machines. Times in milliseconds, ratios as reference over candidate.

    `usd` is None where no price is known; `calls` counts questions to models, `models` names them.
    `waiting` is a run that paused for an answer or for results, `stopped_because` saying which.
    `phases` say where the judge's time went since the file was read; () where it is far away.
    """

    run: str
    task: TaskSummary
    hardware: HardwareSummary
    status: Status
    baselines: dict[str, BaselineSummary]
    best: BestSummary | None
    candidates: CandidateCounts
    rounds: int
    seconds: float
    stopped_because: str = ""
    isolation: Isolation = NOT_ISOLATED
    tokens: TokenCounts = TokenCounts()
    usd: float | None = None
    calls: int = 0
    models: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    export: str | None = None
