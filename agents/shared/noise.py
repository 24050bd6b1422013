"""Whether times differ by more than the noise they were taken in: one test behind every claim.

A screening is a fraction of a second long, so its samples share the state that the machine was in,
and more of them bring its median no nearer to that of another candidate, timed at another moment.
What they do show is how much a time varies here. So the standard error of a candidate's time is
taken to be the standard deviation of one of its samples, not that of their median: of the logarithm
of the time, from the 10-90 % band (2.563 standard deviations of a normal distribution, and not
moved by the rare long sample). One with few or unusually quiet samples counts as no quieter than
the typical candidate of the run. Between screening and precise timing, candidates on an H200 moved
by one to two of these standard deviations.

The times of a group (the candidates with a setting) vary by more than noise, as they differ in
other ways. Its median has the standard error of a median of so many values, 1.253 sd / sqrt(n),
with the larger of the noise and the spread between its candidates: only a difference that shows
through everything else is laid to the setting.

An interval of the ratio of two medians is then normal in the logarithm. Its level is 5 % over all
the comparisons that could have been made (Bonferroni), because candidates and settings are chosen
for being far apart: of equal candidates, the fastest and the slowest differ by far more than two
that were picked beforehand. Not covered: noise that lasts longer than a screening, yet does not
show within any; and settings that always come together, which no timing tells apart.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import comb, exp, log, pi, sqrt
from statistics import NormalDist, fmean, median, quantiles
from typing import Protocol

from kernelwright.tools.types import Evaluation, Measurement, Value

LEVEL = 0.05
# Between the 10 % and the 90 % point of a normal distribution, in standard deviations.
BAND = 2.0 * NormalDist().inv_cdf(0.9)


class Timed(Protocol):
    """A median time, and the standard deviation of a sample's logarithm around it."""

    @property
    def median_ms(self) -> float:
        """Milliseconds, above 0."""
        ...

    @property
    def noise(self) -> float:
        """0.1 is about 10 % of the time."""
        ...


class RatioOfMedians(Value):
    """How many times as long the slower of two took, with an interval for the true ratio."""

    ratio: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the slower one is slower beyond the noise."""
        return self.low > 1.0

    def __str__(self) -> str:
        """`1.52x, 95 % interval 1.31 to 1.76`."""
        return f"{self.ratio:.2f}x, 95 % interval {self.low:.2f} to {self.high:.2f}"


class Timing(Value):
    """A time with its noise, for whoever has no better value to hand."""

    median_ms: float
    noise: float


def noise_of(measurement: Measurement) -> float:
    """The standard deviation of one sample's logarithm, by the 10-90 % band."""
    return _by_band(measurement.p10_ms, measurement.p90_ms)


def timing_of(evaluation: Evaluation) -> Timing | None:
    """A candidate's most trusted time; None for one without."""
    if (precise := evaluation.hardest) is not None:
        samples = precise.candidate_samples_ms
        tenths = quantiles(samples, n=10) if len(samples) > 1 else [1.0]
        return Timing(median_ms=precise.candidate_ms, noise=_by_band(tenths[0], tenths[-1]))
    screen = evaluation.screen
    return Timing(median_ms=screen.median_ms, noise=noise_of(screen)) if screen else None


def _by_band(low_ms: float, high_ms: float) -> float:
    return log(high_ms / low_ms) / BAND if 0.0 < low_ms < high_ms else 0.0


class Noise(Value):
    """The noise of a run, and among how many things its claims are chosen.

    Attributes:
        typical: The noise of the run's middle candidate.
        candidates: How many were timed; any two of them may be contrasted.
        settings: How many pairs of values of one attribute may be.
    """

    typical: float = 0.0
    candidates: int = 2
    settings: int = 1

    def between(self, faster: Timed, slower: Timed) -> RatioOfMedians:
        """Of two candidates."""
        return self.between_times(faster.median_ms, slower.median_ms, faster, slower)

    def between_times(
        self, faster_ms: float, slower_ms: float, faster: Timed, slower: Timed
    ) -> RatioOfMedians:
        """Of other times of the same two candidates, taken in the same noise."""
        error = sqrt(self._of(faster) ** 2 + self._of(slower) ** 2)
        return _interval(log(slower_ms / faster_ms), error, comb(max(self.candidates, 2), 2))

    def between_groups(self, faster: Sequence[Timed], slower: Sequence[Timed]) -> RatioOfMedians:
        """Of the medians of two groups, neither empty."""
        apart = log(_median_ms(slower) / _median_ms(faster))
        spread = _within(faster, slower)
        error = sqrt(sum(self._of_median(group, spread) ** 2 for group in (faster, slower)))
        return _interval(apart, error, self.settings)

    def clears(self, measured: Sequence[Timed], bound_ms: float, outcomes: int = 1) -> bool:
        """Whether the median of just these candidates is not at a bound, but beyond the noise.

        As they are all that is spoken of, only the timing of the middle one is uncertain.
        `outcomes` is how many are looked at together.
        """
        error = max(self._of(item) for item in measured)
        found = _interval(abs(log(_median_ms(measured) / bound_ms)), error, outcomes)
        return found.is_clear

    def _of(self, item: Timed) -> float:
        return max(item.noise, self.typical)

    def _of_median(self, group: Sequence[Timed], spread: float) -> float:
        noise = sqrt(fmean(self._of(item) ** 2 for item in group))
        # The median of one or two values is their mean.
        of_medians = sqrt(pi / 2.0) if len(group) > 2 else 1.0
        return max(noise, spread) * of_medians / sqrt(len(group))


def noise_among(found: Sequence[Timed], attributes: Sequence[Mapping[str, str]]) -> Noise:
    """The noise of a run's timed candidates, each with its attributes."""
    values: dict[str, set[str]] = {}
    for item in attributes:
        for name, value in item.items():
            values.setdefault(name, set()).add(value)
    return Noise(
        typical=median([item.noise for item in found]) if found else 0.0,
        candidates=max(2, len(found)),
        settings=max(1, sum(comb(len(known), 2) for known in values.values())),
    )


def overlap(faster: str, slower: str, found: RatioOfMedians) -> str:
    """What is said of two candidates instead of an explanation."""
    return (
        f"{faster} and {slower} cannot be told apart here: their times overlap "
        f"({found.ratio:.2f}x, and noise alone reaches {found.ratio / found.low:.2f}x)"
    )


def _median_ms(group: Sequence[Timed]) -> float:
    return median(item.median_ms for item in group)


def _within(*groups: Sequence[Timed]) -> float:
    """The standard deviation of the logarithms around their own group's mean; 0 if none shows."""
    squares, freedom = 0.0, 0
    for group in groups:
        logs = [log(item.median_ms) for item in group]
        middle = fmean(logs)
        squares += sum((value - middle) ** 2 for value in logs)
        freedom += len(logs) - 1
    return sqrt(squares / freedom) if freedom else 0.0


def _interval(apart: float, error: float, comparisons: int) -> RatioOfMedians:
    reach = _critical(comparisons) * error
    return RatioOfMedians(ratio=exp(apart), low=exp(apart - reach), high=exp(apart + reach))


@lru_cache(maxsize=256)
def _critical(comparisons: int) -> float:
    """How many standard errors the interval reaches, either way."""
    return NormalDist().inv_cdf(1.0 - LEVEL / 2.0 / comparisons)
