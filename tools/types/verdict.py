"""What the judge concluded about one candidate, and how it was kept apart while it ran.

How a process that ran code of others was kept apart is one value for every report.
"""

from enum import StrEnum
from typing import Literal

from pydantic import model_validator

from kernelwright.tools.types.idea import LaunchShape
from kernelwright.tools.types.measurement import Comparison, Measurement, ModeTiming, Outcome
from kernelwright.tools.types.value import Value


class WallKind(StrEnum):
    """What stood between the code and this machine, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    NONE = "none"
    NOT_RUN = "not_run"  # nothing of the candidate ran
    UNKNOWN = "unknown"  # an older record, or a worker of which nothing is known


class Isolation(Value):
    """The wall and one sentence on what exactly it gave; `str` is the sentence.

    Records from before there were kinds hold the sentence alone; they can still be read.
    """

    kind: WallKind
    words: str

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        kind = WallKind.NONE if "not isolated" in given else WallKind.UNKNOWN
        return {"kind": WallKind.NOT_RUN if given == UNBUILT_WORDS else kind, "words": given}

    def __str__(self) -> str:
        """The sentence, for whoever prints it."""
        return self.words

    @property
    def is_a_wall(self) -> bool:
        """Whether anything was kept out at all."""
        return self.kind in (WallKind.BUBBLEWRAP, WallKind.NAMESPACES)


UNBUILT_WORDS = "compiled, not run"
NOT_ISOLATED = Isolation(kind=WallKind.NONE, words="not isolated")
# The isolation of a candidate that was refused before anything of it ran.
UNBUILT = Isolation(kind=WallKind.NOT_RUN, words=UNBUILT_WORDS)


# How closely a candidate is judged, from the least to the most trusted.
Effort = Literal["screen", "precise", "certify"]


class Verdict(StrEnum):
    """The conclusion; everything but CORRECT ends the ladder for that candidate."""

    CORRECT = "correct"
    INVALID_PLAN = "invalid_plan"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    ILLEGAL_ACCESS = "illegal_access"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_SHAPE = "wrong_shape"
    WRONG_RESULT = "wrong_result"
    NOT_WRITTEN = "not_written"
    OUT_OF_BOUNDS = "out_of_bounds"
    UNDEFINED_BEHAVIOUR = "undefined_behaviour"
    INPUT_MUTATED = "input_mutated"
    NONDETERMINISTIC = "nondeterministic"
    STALE_RESULT = "stale_result"
    BELOW_FLOOR = "below_floor"
    CHEATING = "cheating"

    @property
    def words(self) -> str:
        """As a person reads it."""
        return self.value.replace("_", " ")


class CompileReport(Value):
    """What the compiler said: per-kernel resources where the language has them."""

    kernel: str
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None


class OutputError(Value):
    """How far one output is from the float64 truth, on one distribution of inputs.

    `error` and `reference_error` are norm-wise relative errors of the candidate and of PyTorch's
    own result in the task's dtype; `error_ratio` the larger of the norm-wise and worst-element
    ratios after both were floored at the output dtype's rounding.
    """

    output: int
    distribution: str
    error: float
    reference_error: float
    error_ratio: float
    worst_index: tuple[int, ...] = ()
    worst_got: float | None = None
    worst_expected: float | None = None


class StageTimes(Value):
    """Where one evaluation's time went."""

    compile_s: float = 0.0
    verify_s: float = 0.0
    screen_s: float = 0.0
    time_s: float = 0.0


# `slower alone`: ahead by device time, and single calls, which hold the host's part, behind.
SpeedOutcome = Literal[Outcome, "not settled", "slower alone"]


class SpeedClaim(Value):
    """What may be claimed of a candidate beside PyTorch, and why not more, in words."""

    outcome: SpeedOutcome
    words: str


class Clocks(Value):
    """Three clocks over a foreign candidate's timed calls, milliseconds a call.

    Attributes:
        wall_ms: The judge's own, from go until it held the answers; the only one believed.
        own_ms: The candidate's process: device events, or its monotonic clock.
        work_ms: Summed kernel durations, or processor time by the kernel's books.
        protocol_ms: What the judge's protocol costs a call that does nothing.
    """

    wall_ms: float
    own_ms: float
    work_ms: float
    protocol_ms: float


# Why values of some kind say nothing; the kind stands before it.
OWN_NOT_FINITE = "PyTorch's own result is not finite there"


class Verification(Value):
    """The judge's finding on correctness, with the numbers behind it.

    `precision` is the label: the task's own, a lower one, or `fp32 via fp16` for what splits its
    operands and loses nothing. `effective_bits` are the correct bits of a result on inputs that
    short significands get wrong, None where that was not measured. `apart` says why the candidate
    is not ranked with those of the task's own precision; "" for one that is. `shapes` says on which
    other shapes it is right, or that it is for the task's only; "" where none was tried.
    """

    verdict: Verdict
    reason: str
    error_ratio: float | None = None
    errors: tuple[OutputError, ...] = ()
    allclose_1e4: bool | None = None
    allclose_1e2: bool | None = None
    coverage: float | None = None
    method: str = ""
    precision: str = ""
    effective_bits: float | None = None
    apart: str = ""
    shapes: str = ""
    distributions: tuple[str, ...] = ()
    not_verified: tuple[str, ...] = ()
    isolation: Isolation = NOT_ISOLATED

    @property
    def overflown(self) -> tuple[str, ...]:
        """The kinds of values on which PyTorch's own result is not finite: nothing was judged."""
        end = f": {OWN_NOT_FINITE}"
        return tuple(one.removesuffix(end) for one in self.not_verified if one.endswith(end))


def _ratio(item: Comparison) -> float:
    return item.ratio


class Evaluation(Value):
    """Everything known about one candidate after one trip up the ladder.

    `screen` is the short timing that every correct candidate gets; `comparisons` the precise
    interleaved ones, one a baseline, that only promising candidates get. `launches` is how its
    plan really launched its kernels, () for one that was not timed. `modes` stand beside them for
    finalists, against the best baseline. `launch_ms` is what a single call on an idle device takes
    longer than its work there: the host's share, None where that was not taken (on a CPU).
    """

    candidate: str
    verification: Verification
    reports: tuple[CompileReport, ...] = ()
    launches: tuple[LaunchShape, ...] = ()
    compiler_log: str = ""
    screen: Measurement | None = None
    comparisons: tuple[Comparison, ...] = ()
    modes: tuple[ModeTiming, ...] = ()
    launch_ms: float | None = None
    prepare_ms: float | None = None
    clocks: Clocks | None = None
    stages: StageTimes = StageTimes()

    @property
    def verdict(self) -> Verdict:
        """Short for `verification.verdict`."""
        return self.verification.verdict

    @property
    def median_ms(self) -> float | None:
        """The best known time: that of the headline's comparison, else the screened one.

        Records from before there were two clocks go on with the least of their comparisons, by
        which their searches decided.
        """
        if not self.comparisons:  # as of most of a long run's, all of which every step asks
            return self.screen.median_ms if self.screen else None
        times = [i.candidate_ms for i in self.comparisons if i.clock == "call"]
        return min(times) if times else min(self.comparisons, key=_ratio).candidate_ms

    @property
    def host_share(self) -> float | None:
        """The host's part of a single call, from 0 to 1; None where that was not taken."""
        if self.launch_ms is None or self.median_ms is None:
            return None
        return self.launch_ms / (self.launch_ms + self.median_ms)

    @property
    def hardest(self) -> Comparison | None:
        """The comparison with the baseline that is hardest to beat; None when there was none."""
        return min(self.comparisons, key=_ratio, default=None)

    @property
    def claim(self) -> SpeedClaim | None:
        """What may be said of its speed beside PyTorch; None where it was not compared."""
        hardest = self.hardest
        return None if hardest is None else _claim(hardest, self.comparisons, self.modes)


def _claim(
    hardest: Comparison, comparisons: tuple[Comparison, ...], modes: tuple[ModeTiming, ...]
) -> SpeedClaim:
    """The one rule for every headline, table and export.

    Faster: the whole interval is above 1 beside every baseline, all of that is settled, single
    calls are certainly slower beside none, and no other load says otherwise.
    """
    if hardest.outcome == "slower":
        return SpeedClaim(outcome="slower", words=f"slower than {hardest.baseline}")
    open_ones = [item for item in comparisons if item.ci95_low <= 1]
    if doubts := [item.unsettled for item in open_ones if item.unsettled]:
        return SpeedClaim(outcome="not settled", words=doubts[0])
    for item in sorted(comparisons, key=lambda item: item.ratio):
        if item.outcome != "faster":
            return SpeedClaim(
                outcome="not distinguishable", words=f"no faster than {item.baseline}"
            )
    if hardest.unsettled:
        return SpeedClaim(outcome="not settled", words=hardest.unsettled)
    for item in comparisons:
        if item.latency is not None and item.latency.outcome == "slower":
            words = f"a single call on an idle device is slower than {item.baseline}'s"
            return SpeedClaim(outcome="slower alone", words=words)
    for mode in modes:
        if mode.outcome in ("slower", "not settled"):
            words = f"in {mode.mode} mode it is {mode.outcome} beside {mode.comparison.baseline}"
            return SpeedClaim(outcome="not settled", words=words)
    return SpeedClaim(outcome="faster", words="faster than every PyTorch baseline that was timed")
