"""What timings say, on made-up timings: an A/A run is not a win, and drift does not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.evaluate.clock.statistics import median, percentile, ratio_interval

TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40)


def noisy(generator: np.random.Generator, true_ms: float, pairs: int) -> list[float]:
    """One-sided, heavy-tailed noise, as timings have."""
    return list(true_ms * (1 + 0.03 * generator.pareto(2.5, pairs)))


def test_an_a_a_run_is_hardly_ever_taken_for_a_difference() -> None:
    generator = np.random.default_rng(0)
    false_alarms = 0
    for seed in range(200):
        found = ratio_interval(
            noisy(generator, 2.0, 60), noisy(generator, 2.0, 60), seed=seed, resamples=400
        )
        false_alarms += not found.low <= 1.0 <= found.high
    assert false_alarms <= 20


def test_a_difference_beyond_the_noise_is_found_with_its_size() -> None:
    generator = np.random.default_rng(1)
    found = ratio_interval(
        noisy(generator, 3.0, 60), noisy(generator, 2.0, 60), seed=3, resamples=1000
    )
    assert found.low > 1.3
    assert found.median == pytest.approx(1.5, abs=0.1)


def test_drift_that_meets_both_of_a_pair_cancels() -> None:
    drift = np.linspace(1.0, 4.0, 50)
    found = ratio_interval(list(2.0 * drift), list(1.0 * drift), seed=0, resamples=200)
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)


@given(TIMES, st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_the_interval_holds_the_median_and_repeats(times: list[float], seed: int) -> None:
    other = times[::-1]
    found = ratio_interval(times, other, seed=seed, resamples=100)
    assert found == ratio_interval(times, other, seed=seed, resamples=100)
    assert found.low <= found.high
    ratios = [a / b for a, b in zip(times, other, strict=True)]
    assert min(ratios) <= found.low
    assert found.high <= max(ratios)
    assert found.median == pytest.approx(median(ratios))


@given(TIMES)
@settings(max_examples=50, deadline=None)
def test_percentiles_are_ordered(times: list[float]) -> None:
    assert percentile(times, 10) <= median(times) <= percentile(times, 90)


@pytest.mark.parametrize(("top", "bottom"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_what_is_no_pair_of_timings_is_refused(top: list[float], bottom: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|above 0"):
        ratio_interval(top, bottom, seed=0, resamples=10)
