"""What a list of timings says: medians, bands, and the interval of a ratio.

Medians throughout, because the noise of a timing is one-sided and heavy. No torch here.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

from kernelwright.tools.types.value import Value

_ENOUGH_TO_SEE_MEMORY = 32  # pairs; a correlation of fewer says nothing


class RatioInterval(Value):
    """The median of baseline / candidate over pairs, and an interval for the true one."""

    median: float
    low: float
    high: float


def ratio_interval(
    baseline_ms: Sequence[float], candidate_ms: Sequence[float], *, level: float = 0.05
) -> RatioInterval:
    """The ratio pair by pair, as pairs share the state the machine was in.

    The interval is between order statistics of the ratios: it misses the true median with a chance
    of at most `level` whatever the noise looks like, as the number of pairs above the median is
    binomial (W. J. Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2). Noise that
    lasts longer than a pair leaves fewer independent ones, which is estimated and allowed for.
    Fewer pairs than a level can be had from give their whole range, widened by itself.

    Args:
        baseline_ms: one time a pair.
        candidate_ms: the other one of each pair, in the same order.
        level: the chance to miss, above 0 and below 1.

    Raises:
        ValueError: the lengths differ, there is no pair, or a time is not above 0.
    """
    top, bottom = np.asarray(baseline_ms, float), np.asarray(candidate_ms, float)
    if top.shape != bottom.shape or top.size == 0:
        raise ValueError(f"pairs are needed, but there were {top.size} and {bottom.size} times")
    if min(top.min(), bottom.min()) <= 0:
        raise ValueError("times must be above 0 ms")
    ratios = top / bottom
    ordered = np.sort(ratios)
    whole = int(independent(list(np.log(ratios))))
    beyond = _beyond(whole, level)
    if beyond is None:
        spread = ordered[-1] / ordered[0]
        low, high = ordered[0] / spread, ordered[-1] * spread
    else:
        # Of fewer independent pairs the same share is left out at either end.
        index = beyond * ratios.size // whole
        low, high = ordered[index], ordered[-1 - index]
    return RatioInterval(median=float(np.median(ratios)), low=float(low), high=float(high))


def independent(values: Sequence[float]) -> float:
    """How many independent values so many in a row are worth, at most their number.

    By the correlation of neighbouring fours, A B B A, in which order and drift cancel: of a
    process that remembers its last value, a share of (1 - r) / (1 + r) is news (C. J. Geyer,
    Practical Markov Chain Monte Carlo, Statistical Science 7, 1992). Of signs, as tails mislead.
    """
    count = len(values)
    if count < _ENOUGH_TO_SEE_MEMORY:
        return float(count)
    even = np.asarray(values[: count // 2 * 2], float).reshape(-1, 2).mean(axis=1)
    signs = np.sign(even - np.median(even))
    memory = float(np.mean(signs[1:] * signs[:-1]))
    # What as many independent signs would show by chance is no memory.
    memory = max(0.0, memory - 1.0 / np.sqrt(signs.size))
    return float(count * (1.0 - memory) / (1.0 + memory))


def _beyond(pairs: int, level: float) -> int | None:
    """How many pairs lie beyond either end of the interval; None where there are too few.

    An end misses when at most that many of the pairs fall on its side of the true median.
    """
    chance, found = 0, None
    for beyond in range(pairs):
        chance += comb(pairs, beyond)
        if 2.0 * chance > level * 2.0**pairs:
            break
        found = beyond
    return found


def percentile(samples: Sequence[float], percent: float) -> float:
    """The value below which that share of the samples lies."""
    return float(np.percentile(np.asarray(samples, float), percent))


def median(samples: Sequence[float]) -> float:
    """The middle sample."""
    return float(np.median(np.asarray(samples, float)))
