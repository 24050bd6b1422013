"""What interleaved timing read off its clocks and the kernel's books, round by round."""

from kernelwright.tools.evaluate.timing.statistics import median, percentile
from kernelwright.tools.types import Clocks
from kernelwright.tools.types.value import Value

_LEAST_SHARE = 0.1


class ClockReading(Value):
    """One round's times in milliseconds, for all of its calls together.

    `cpu_ms` is the guest's processor time; 0 where nobody read the books.
    """

    calls: int
    wall_ms: float
    own_ms: float
    cpu_ms: float = 0.0


class ClockReadings:
    """All rounds of one interleaved timing.

    Attributes:
        baseline_ahead_ms: Processor time that the baseline's guest used in rounds that never began.
        ahead_ms: The same of the candidate's.
    """

    def __init__(self) -> None:
        self.baseline_ahead_ms: list[float] = []
        self.ahead_ms: list[float] = []
        self.nulls: list[ClockReading] = []
        self.baseline: list[ClockReading] = []
        self.candidate: list[ClockReading] = []

    def clear(self) -> None:
        """Forget what was read while everything warmed up, but for the protocol's last cost."""
        del self.nulls[:-1]
        self.baseline.clear()
        self.candidate.clear()
        self.baseline_ahead_ms.clear()
        self.ahead_ms.clear()

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
