"""Three clocks over the same calls, of which only the judge's is believed.

The guest's own clock (device events, or the monotonic one) and the summed work (kernel durations,
or processor time by the kernel's books) must tell the same story as the judge's wall clock. Where
they do not, something hid from one of them, and that is a verdict.
"""

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.statistics import median, percentile
from kernelwright.tools.types import Clocks
from kernelwright.tools.types.value import Value

_LEAST_SHARE = 0.1
_LATE = 0.02  # a span within another cannot be longer, but for the clocks' own grain
_AHEAD_MS = 0.3
_TICK_MS = 10.0  # processor time is booked in ticks


class ClockReading(Value):
    """One round's times in milliseconds, for all of its calls together.

    `cpu_ms` is the guest's processor time, and `ahead_ms` as much of it as was used before the
    word go, while the values already lay there; 0 where nobody read the books.
    """

    calls: int
    wall_ms: float
    own_ms: float
    cpu_ms: float = 0.0
    ahead_ms: float = 0.0


class ClockReadings:
    """All rounds of one interleaved timing."""

    def __init__(self) -> None:
        self.nulls: list[ClockReading] = []
        self.baseline: list[ClockReading] = []
        self.candidate: list[ClockReading] = []

    def clear(self) -> None:
        """Forget what was read while everything warmed up, but for the protocol's last cost."""
        del self.nulls[:-1]
        self.baseline.clear()
        self.candidate.clear()

    def net_ms(self, reading: ClockReading) -> float:
        """A call's time without the protocol's cost, as far as that is known by now.

        Never less than a tenth of what the clock said: noise must not decide the figure.
        """
        whole = reading.wall_ms / reading.calls
        return max(whole - self.protocol_ms, _LEAST_SHARE * whole)

    @property
    def protocol_ms(self) -> float:
        """What a call costs that does no work; rather too little, as it is taken off."""
        return percentile([r.wall_ms / r.calls for r in self.nulls], 25) if self.nulls else 0.0

    def clocks(self, work_ms: float | None) -> Clocks:
        """The three clocks, a call's worth each."""
        outside = percentile([(r.wall_ms - r.own_ms) / r.calls for r in self.nulls], 25)
        return Clocks(
            wall_ms=median([r.wall_ms / r.calls for r in self.candidate]) - outside,
            own_ms=median([r.own_ms / r.calls for r in self.candidate]),
            work_ms=work_ms if work_ms is not None else self._cpu_ms(),
            protocol_ms=self.protocol_ms,
        )

    def _cpu_ms(self) -> float:
        return median([r.cpu_ms / r.calls for r in self.candidate])


def noise(readings: ClockReadings) -> str:
    """Why the clocks cannot be compared on this machine now, or an empty word when they can.

    A call is told from the protocol's cost only if it takes more than that cost itself varies by:
    the middle half of it, as a median is held against it. Rounds that another process interrupted
    lie outside; they widen the interval of the ratio, and the allowances of `disagreement`.
    """
    each = [reading.wall_ms / reading.calls for reading in readings.nulls]
    low, high = percentile(each, 25), percentile(each, 75)
    whole = median([reading.wall_ms / reading.calls for reading in readings.candidate])
    if whole - readings.protocol_ms > high - low:
        return ""
    return (
        f"the clocks could not be compared: too noisy; calls that do no work took {low:.3g} to "
        f"{high:.3g} ms each, half of the time, the candidate's {whole:.3g} ms, so its time cannot "
        "be told from them"
    )


def worked_ahead(readings: ClockReadings) -> str:
    """Why the candidate's work was begun before the clock, or an empty word when it was not.

    A guest that waits for the word needs no processor. Threads of OpenMP spin a little before
    they sleep, so what nearly all rounds of the baseline's guest stayed below is allowed; and it
    takes most rounds.
    """
    honest = percentile([r.ahead_ms for r in (*readings.nulls, *readings.baseline)], 90)
    ahead = median([r.ahead_ms for r in readings.candidate])
    whole = median([r.wall_ms for r in readings.candidate])
    if ahead <= honest + _AHEAD_MS:
        return ""
    return (
        f"when its values lay there and nothing was asked of it yet, the guest used {ahead:.3g} ms "
        f"of processor time a round (the baseline's at most {honest:.3g} ms, nearly always), and "
        f"{whole:.3g} ms passed by the clock then: it works ahead"
    )


def disagreement(readings: ClockReadings, clocks: Clocks, parallel: float, rules: Rules) -> str:
    """Why the three clocks cannot all be right, or an empty word when they can.

    A busy machine lengthens what happens outside of a guest's own clock, and lets threads spin
    that wait. So each allowance is what honest rounds ever needed, those of the baseline and of
    calls that do nothing, in turns with the candidate's; and it takes most of the rounds to accuse.

    Args:
        readings: of all rounds.
        clocks: a call's worth.
        parallel: how much work can be done at once: processors, or 1 for a device.
        rules: the margins.
    """
    told = (
        f"the three clocks disagree: wall clock {clocks.wall_ms:.4g} ms, the candidate's own clock "
        f"{clocks.own_ms:.4g} ms, summed work {clocks.work_ms:.4g} ms a call"
    )
    honest = (*readings.nulls, *readings.baseline)
    outside = max(r.wall_ms - r.own_ms for r in honest)
    missed = median([(r.wall_ms - outside - r.own_ms) / r.wall_ms for r in readings.candidate])
    whole = median([r.wall_ms for r in readings.candidate])
    if missed > rules.clock_margin and missed * whole > rules.clock_slack_ms:
        return f"{told}; its own clock misses work"
    if median([r.own_ms / r.wall_ms for r in readings.candidate]) > 1.0 + _LATE:
        return f"{told}; its own clock does not tell the time"
    calls = median([r.calls for r in readings.candidate])
    spun = max(0.0, *(r.cpu_ms - parallel * r.wall_ms for r in honest))
    if clocks.work_ms * calls > parallel * (whole * (1 + rules.clock_margin) + _TICK_MS) + spun:
        return f"{told}; work was done that the wall clock did not see"
    return ""
