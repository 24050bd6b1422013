"""Timings by two clocks with the conditions they were taken under, and where a task's time went."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from kernelwright.tools.types.value import Value

Mode = Literal["offline", "server"]
Outcome = Literal["faster", "slower", "not distinguishable"]
# What a time is. `device`: between two events on a GPU, with the call queued behind the flush of
# its caches, so that the host is ahead; as Triton's do_bench does, and the headline. `call`: the
# same on an idle device, so that it holds the host's time to issue the call. `wall`: around a call
# that returns when its work is done, on a CPU, where the two are one. `rounds`: the judge's wall
# clock around calls in a row in another process, which foreign code is timed by. Records from
# before there were two clocks are of `call`.
Clock = Literal["device", "call", "wall", "rounds"]
# An interval wider than this share of its ratio settles nothing.
SETTLED_WIDTH = 0.1
# Nor does a wall clock while other processes use more of the processors than this share. On two
# cores of a virtual machine at rest 10 to 12 % are the host's and our own waiting.
BUSY_SHARE = 0.25


class Conditions(Value):
    """What the device was doing while it was timed; None where it cannot be read.

    `others_share` is the share of all processors that other processes used meanwhile.
    `pairs_retaken` were dropped because a clock moved or the device throttled, and taken again;
    `pairs_unsteady` were kept although it still did.
    """

    device: str
    l2_flushed: bool
    input_sets: int
    sm_clock_mhz: int | None = None
    sm_clock_most_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    other_processes: int | None = None
    threads: int | None = None
    load_average: float | None = None
    others_share: float | None = None
    pairs_retaken: int = 0
    pairs_unsteady: int = 0
    notes: tuple[str, ...] = ()

    def noted(self, words: str) -> "Conditions":
        """The same with these words among the notes."""
        return self.model_copy(update={"notes": (*self.notes, words)})


class Measurement(Value):
    """Timings of one implementation on one device, after warm-up."""

    median_ms: float = Field(gt=0)
    p10_ms: float
    p90_ms: float
    samples_ms: tuple[float, ...]
    conditions: Conditions

    @property
    def spread(self) -> float:
        """Width of the 10-90 % band as a fraction of the median."""
        return (self.p90_ms - self.p10_ms) / self.median_ms


class Paired(Value):
    """Two implementations timed in turns: milliseconds of each, and the ratio pair by pair.

    `ratio` is the median over pairs of baseline time / candidate time; the interval holds the true
    one with a chance of at least 95 %, whenever the comparison stopped. `noise` is by what share of
    1 the session's comparison of a baseline with itself was off: what does not clear it cannot be
    told from 1.
    """

    candidate_ms: float
    baseline_ms: float
    ratio: float
    ci95_low: float
    ci95_high: float
    pairs: int
    noise: float = 0.0

    @property
    def distinguishable(self) -> bool:
        """Whether the interval excludes 1 by more than the session's own noise."""
        return self.outcome != "not distinguishable"

    @property
    def outcome(self) -> Outcome:
        """What may be said of the candidate beside this baseline."""
        if self.ci95_low > 1.0 + self.noise:
            return "faster"
        return "slower" if self.ci95_high < 1.0 / (1.0 + self.noise) else "not distinguishable"

    @property
    def wide(self) -> bool:
        """Whether the interval is wider than what settles anything."""
        return self.ci95_high - self.ci95_low > SETTLED_WIDTH * self.ratio


class Comparison(Paired):
    """A candidate against one baseline, interleaved in one process, by the headline's clock.

    `as_graph` says that both were replays of CUDA graphs, as a baseline that is one competes with
    the candidate as one. `latency` is the other clock's comparison of the same two, single calls on
    an idle device, which hold the host's time to issue them, issued in the same way; None on a CPU,
    where there is one clock, and where only the headline was taken.
    """

    baseline: str
    candidate_samples_ms: tuple[float, ...]
    baseline_samples_ms: tuple[float, ...]
    conditions: Conditions
    clock: Clock = "call"
    as_graph: bool = False
    latency: Paired | None = None

    @property
    def unsettled(self) -> str:
        """Why nothing may be claimed from it yet, in words; "" where it is settled."""
        if self.wide:
            width = (self.ci95_high - self.ci95_low) / self.ratio
            return f"its 95 % interval beside {self.baseline} is {width:.0%} of the ratio wide"
        share = self.conditions.others_share
        if self.clock in ("wall", "rounds") and share is not None and share > BUSY_SHARE:
            return f"other programs used {share:.0%} of the processors beside {self.baseline}"
        return ""

    @property
    def settled_outcome(self) -> Outcome | Literal["not settled"]:
        """`outcome`, but of what settles nothing yet and is not certainly slower."""
        return "not settled" if self.unsettled and self.outcome != "slower" else self.outcome


class ModeTiming(Value):
    """A comparison under another load than the headline's.

    `offline` is back to back with warm caches, a call's share of many; `server` one call now and
    then, after exponential gaps, with cold caches and clocks that had time to fall.
    """

    mode: Mode
    comparison: Comparison

    @property
    def outcome(self) -> Outcome | Literal["not settled"]:
        """What it says beside the headline, of which it may only keep something."""
        found = self.comparison
        unsure = found.wide and found.outcome == "not distinguishable"
        return "not settled" if unsure else found.outcome


class Baseline(Value):
    """One way PyTorch itself does the task: `eager` or `compile` (or another mode).

    `latency_ms` is a single call on an idle device, beside the device time in `measurement`; None
    on a CPU, where the two are one. `failure` says why there is no measurement; that torch.compile
    cannot compile a module is a fact about the module, not an error of ours. `noise` is how far
    from 1 the ratio was when this baseline was compared with itself; None where that was not tried.
    """

    name: str
    measurement: Measurement | None = None
    latency_ms: float | None = None
    failure: str = ""
    setup_s: float = 0.0
    noise: float | None = None


class Baselines(Value):
    """All baselines of a task on this device, and the ceilings that give its floor."""

    items: tuple[Baseline, ...]

    @property
    def best(self) -> Baseline:
        """The fastest baseline that ran; LookupError when none did."""
        ran = [item for item in self.items if item.measurement is not None]
        if not ran:
            raise LookupError("no baseline could be measured")
        return min(ran, key=lambda item: item.measurement.median_ms if item.measurement else 0.0)

    @property
    def noise(self) -> float:
        """By what share of 1 a comparison of nothing with nothing is off in this session."""
        return max((item.noise for item in self.items if item.noise is not None), default=0.0)

    def named(self, name: str) -> Baseline | None:
        """The baseline of that name, or None."""
        return next((item for item in self.items if item.name == name), None)


class Phase(Value):
    """Seconds that one kind of step took.

    Attributes:
        name: What was done, such as `certify: verify tiny`; the words before the colon are the
            part of the work that it belongs to.
        seconds: On the wall's clock.
        cpu_s: Of all processors, in the process that did it and in compilers it waited for; 0
            where only waiting was measured.
        times: How often.
    """

    name: str
    seconds: float
    cpu_s: float = 0.0
    times: int = 1

    @property
    def part(self) -> str:
        """The part of the work, such as `certify`."""
        return self.name.split(":", maxsplit=1)[0]


def together(phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """Phases of one name added up, in the order in which they first came."""
    sums: dict[str, Phase] = {}
    for item in phases:
        known = sums.get(item.name)
        sums[item.name] = item if known is None else _sum(known, item)
    return tuple(sums.values())


def _sum(one: Phase, two: Phase) -> Phase:
    return Phase(
        name=one.name,
        seconds=one.seconds + two.seconds,
        cpu_s=one.cpu_s + two.cpu_s,
        times=one.times + two.times,
    )
