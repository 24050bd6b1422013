"""Axes of the report's charts: positions on a logarithmic or linear scale, and round ticks."""

from dataclasses import dataclass
from math import ceil, floor, log10


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to positions between `start` and `end` in pixels."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = True

    def at(self, value: float) -> float:
        """The position of a value, clipped to the axis."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = log10(value / self.low) / log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values on the axis: 1, 2, 5 times powers of ten, fewer when the axis is long."""
        if not self.logarithmic:
            return _linear(self.low, self.high)
        decades = log10(self.high / self.low)
        steps = (1, 2, 5) if decades < 2.5 else (1,)
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        every = 1 + int(decades // 7)
        ticks = [s * 10.0**p for p in powers if p % every == 0 for s in steps]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def _linear(low: float, high: float) -> list[float]:
    span = high - low
    step = 10.0 ** floor(log10(span)) if span > 0 else 1.0
    for finer in (5, 2):
        if span / step < 4:
            step /= finer
    first = ceil(low / step)
    return [round((first + i) * step, 10) for i in range(int((high - first * step) / step) + 1)]
