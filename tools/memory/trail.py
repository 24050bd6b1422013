"""How one search went: the time of every candidate that it tried, in order.

What going on searching brought in earlier searches says what it may bring in this one. The figure
that decides is of the searches that stood as this one stands: as many candidates tried, and the
best of them not beaten for as long.
"""

from collections.abc import Sequence
from math import inf

from kernelwright.tools.types.value import Value

# A time that is better by less than this is the same one again: noise of short timings.
_THE_SAME = 1.01
# Searches that waited longer than this for something better are alike.
_LONG = 8
# One that was over within so many candidates from here on does not tell what going on brings.
_GOES_ON = 4


class Trail(Value):
    """One search that ended.

    Attributes:
        device: The name of the device it was timed on.
        depth: The name of the search profile.
        structure: Of the task, its shapes aside.
        times_ms: Screened times as they were told; None for what was not right or did not run.
        seconds: What it was allowed.
        whole: Whether it went on as far as it was allowed, and was not ended by other trails.
    """

    device: str
    depth: str
    structure: str
    times_ms: tuple[float | None, ...]
    seconds: float
    whole: bool


def share_that_gained(
    trails: Sequence[Trail], times_ms: Sequence[float | None], gain: float
) -> tuple[int, int]:
    """How many trails that stood like this one became faster by `gain` later on, of how many.

    Args:
        trails: Of other searches; those that other trails ended say nothing.
        times_ms: What this search was told so far.
        gain: The best time of now over the best of the end that counts, such as 1.02.
    """
    tried, waited = len(times_ms), min(_since_the_best(times_ms), _LONG)
    alike = [
        trail.times_ms
        for trail in trails
        if trail.whole
        and _best(trail.times_ms) < inf
        and len(trail.times_ms) >= tried + _GOES_ON
        and _since_the_best(trail.times_ms[:tried]) >= waited
    ]
    gained = sum(_best(other[:tried]) > gain * _best(other) for other in alike)
    return gained, len(alike)


def _best(times_ms: Sequence[float | None]) -> float:
    return min((ms for ms in times_ms if ms is not None), default=inf)


def _since_the_best(times_ms: Sequence[float | None]) -> int:
    """How many were tried after the last one that was clearly better than all before it."""
    best, last = inf, 0
    for number, ms in enumerate(times_ms, start=1):
        if ms is None:
            continue
        if ms * _THE_SAME < best:
            last = number
        best = min(best, ms)
    return len(times_ms) - last
