"""Three clocks over the same calls, of which only the judge's is believed.

The guest's own clock (device events, or the monotonic one) and the summed work (kernel durations,
or processor time by the kernel's books) must tell the same story as the judge's wall clock. Where
they do not, something hid from one of them, and that is a verdict.
"""

from tools.evaluate.clock.statistics import median
from tools.evaluate.rules import Rules
from tools.nouns import Clocks
from tools.nouns.value import Value


class Reading(Value):
    """One round's times in milliseconds, for all of its calls together."""

    calls: int
    wall_ms: float
    own_ms: float
    cpu_ms: float = 0.0


class Readings:
    """All rounds of a duel."""

    def __init__(self) -> None:
        self.nulls: list[Reading] = []
        self.baseline: list[Reading] = []
        self.candidate: list[Reading] = []

    def clear(self) -> None:
        """Forget what was read while everything warmed up, but for the protocol's cost."""
        self.baseline.clear()
        self.candidate.clear()

    def net_ms(self, reading: Reading) -> float:
        """A call's time without the protocol's cost, as far as that is known by now.

        Never less than half of what the clock said: beyond that it would decide the figure.
        """
        whole = reading.wall_ms / reading.calls
        return max(whole - self.protocol_ms, 0.5 * whole)

    @property
    def protocol_ms(self) -> float:
        """What a call costs that does no work."""
        return median([r.wall_ms / r.calls for r in self.nulls]) if self.nulls else 0.0

    def clocks(self, work_ms: float | None) -> Clocks:
        """The three clocks, a call's worth each."""
        outside = median([(r.wall_ms - r.own_ms) / r.calls for r in self.nulls])
        return Clocks(
            wall_ms=median([r.wall_ms / r.calls for r in self.candidate]) - outside,
            own_ms=median([r.own_ms / r.calls for r in self.candidate]),
            work_ms=work_ms if work_ms is not None else self._cpu_ms(),
            protocol_ms=self.protocol_ms,
        )

    def _cpu_ms(self) -> float:
        return median([r.cpu_ms / r.calls for r in self.candidate])


def disagreement(clocks: Clocks, calls: int, parallel: float, rules: Rules) -> str:
    """Why the three clocks cannot all be right, or an empty word when they can.

    Args:
        clocks: a call's worth.
        calls: in a round, which the slack is divided by.
        parallel: how much work can be done at once: processors, or 1 for a device.
        rules: the margins.
    """
    slack = rules.clock_slack_ms / calls + rules.clock_margin * clocks.wall_ms
    told = (
        f"wall clock {clocks.wall_ms:.4g} ms, the candidate's own clock {clocks.own_ms:.4g} ms, "
        f"summed work {clocks.work_ms:.4g} ms a call"
    )
    if clocks.own_ms < clocks.wall_ms - slack:
        return f"the three clocks disagree: {told}; its own clock misses work"
    if clocks.own_ms > clocks.wall_ms + slack:
        return f"the three clocks disagree: {told}; its own clock does not tell the time"
    if clocks.work_ms > parallel * (clocks.wall_ms + slack):
        return f"the three clocks disagree: {told}; work was done that the wall clock did not see"
    return ""
