"""What became of one file of a suite: every figure with its conditions and its evidence."""

from typing import Literal

from kernelwright.tools.evaluate.rules import Depth
from kernelwright.tools.types import Badge, Phase, Value
from kernelwright.tools.types.measurement import Comparison, Conditions
from kernelwright.tools.types.run import Summary

Ended = Literal["searched", "baselines", "refused", "timed_out", "failed"]

EAGER, COMPILE = "eager", "compile"
BESIDE = "beside"  # the part of an account that nobody waited for


class Terms(Value):
    """Under which terms a suite was run; two of its lines compare only where these agree.

    Attributes:
        search: The search profile's name; "" where only baselines were measured.
        seconds: What a search might spend, as far as the person limited it.
        seed: Of everything drawn by chance.
        target: The kind of device.
        kernelwright: Which version.
        torch: Which version.
        evidence: How closely finalists were looked at: "full", or "timing" (see docs/suites.md).
        figures: Of every figure of the judge's rules and the search profile, a hash, so that
            results under others are not taken for these; "" in files from before it was kept.
    """

    search: str
    seconds: float | None
    seed: int
    target: str
    kernelwright: str
    torch: str
    evidence: Depth = "full"
    figures: str = ""


class Against(Value):
    """The best candidate against one baseline, interleaved in one process.

    `ratio` is baseline over candidate, with its 95 % interval over `pairs`.
    """

    baseline: str
    ratio: float
    ci95: tuple[float, float]
    pairs: int
    candidate_ms: float
    baseline_ms: float
    conditions: Conditions

    @classmethod
    def of(cls, found: Comparison) -> "Against":
        """Without the samples, which the run keeps."""
        return cls(
            baseline=found.baseline,
            ratio=found.ratio,
            ci95=(found.ci95_low, found.ci95_high),
            pairs=found.pairs,
            candidate_ms=found.candidate_ms,
            baseline_ms=found.baseline_ms,
            conditions=found.conditions,
        )


class Outcome(Value):
    """One line of a result file.

    Attributes:
        file: The file's name, which names the task within its suite.
        sha256: Of its source, so that a changed file is not taken for the same task.
        ended: How far it came; `words` say why where that is not to the end.
        warnings: What a person was told of the task, in words.
        badges: The audit's doubts; a task proves little where one of them says so.
        summary: Of the search, with baselines; None where there was none.
        baselines_ms: The medians alone, for files that were not searched.
        against: The certified candidate beside each baseline.
        rejected: What was wrong with candidates that were not correct, each kind once.
        kernel_sha256: Of the best candidate's source and plan: which one the figures are of.
        run: The run's id, whose archive holds samples, sources and verdicts.
        seconds: From reading the file to the end, compilers included.
        phases: Where they went, as the judge's account says; () for what a task without one takes.
            What was done beside other work (part "beside") is not of the seconds.
    """

    file: str
    sha256: str
    ended: Ended
    terms: Terms
    words: str = ""
    warnings: tuple[str, ...] = ()
    badges: tuple[Badge, ...] = ()
    summary: Summary | None = None
    baselines_ms: tuple[tuple[str, float | None], ...] = ()
    against: tuple[Against, ...] = ()
    rejected: tuple[str, ...] = ()
    kernel_sha256: str = ""
    run: str = ""
    seconds: float = 0.0
    phases: tuple[Phase, ...] = ()

    def over(self, baseline: str) -> float | None:
        """How many times as fast as one baseline; None where it was not compared."""
        return next((item.ratio for item in self.against if item.baseline == baseline), None)

    @property
    def doubt(self) -> Badge | None:
        """The first badge by which the task proves little, or None."""
        return next((badge for badge in self.badges if badge.proves_little), None)

    @property
    def over_best(self) -> float | None:
        """How many times as fast as the baseline that is hardest to beat."""
        return min((item.ratio for item in self.against), default=None)

    @property
    def hardest(self) -> Against | None:
        """The comparison with that baseline."""
        return min(self.against, key=lambda item: item.ratio, default=None)

    @property
    def floor_fraction(self) -> float | None:
        """The floor's time over the best candidate's."""
        best = self.summary.best if self.summary else None
        return best.floor_fraction if best else None
