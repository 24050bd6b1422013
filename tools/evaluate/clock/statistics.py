"""What a list of timings says: medians, bands, and the interval of a ratio.

Medians throughout, because the noise of a timing is one-sided and heavy. No torch here.
"""

from collections.abc import Sequence

import numpy as np

from tools.nouns.value import Value


class RatioInterval(Value):
    """The median of baseline / candidate over pairs and its bootstrap 95 % interval."""

    median: float
    low: float
    high: float


def ratio_interval(
    baseline_ms: Sequence[float], candidate_ms: Sequence[float], *, seed: int, resamples: int
) -> RatioInterval:
    """The ratio pair by pair, as pairs share the state the machine was in.

    Args:
        baseline_ms: one time a pair.
        candidate_ms: the other one of each pair, in the same order.
        seed: of the resampling, so that a report can be recomputed.
        resamples: bootstrap draws.

    Raises:
        ValueError: the lengths differ, there is no pair, or a time is not above 0.
    """
    top, bottom = np.asarray(baseline_ms, float), np.asarray(candidate_ms, float)
    if top.shape != bottom.shape or top.size == 0:
        raise ValueError(f"pairs are needed, but there were {top.size} and {bottom.size} times")
    if min(top.min(), bottom.min()) <= 0:
        raise ValueError("times must be above 0 ms")
    ratios = top / bottom
    draws = np.random.default_rng(seed).integers(0, ratios.size, (resamples, ratios.size))
    medians = np.median(ratios[draws], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return RatioInterval(median=float(np.median(ratios)), low=float(low), high=float(high))


def percentile(samples: Sequence[float], percent: float) -> float:
    """The value below which that share of the samples lies."""
    return float(np.percentile(np.asarray(samples, float), percent))


def median(samples: Sequence[float]) -> float:
    """The middle sample."""
    return float(np.median(np.asarray(samples, float)))
