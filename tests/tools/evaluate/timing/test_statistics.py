"""What timings say, on made-up timings: an A/A run is not a win, and drift does not matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.evaluate.timing.statistics import (
    independent,
    median,
    percentile,
    ratio_interval,
)

TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40)


def noisy(generator: np.random.Generator, true_ms: float, pairs: int) -> list[float]:
    """One-sided, heavy-tailed noise, as timings have."""
    return list(true_ms * (1 + 0.03 * generator.pareto(2.5, pairs)))


def test_an_a_a_run_is_hardly_ever_taken_for_a_difference() -> None:
    generator = np.random.default_rng(0)
    false_alarms = 0
    for _ in range(400):
        found = ratio_interval(noisy(generator, 2.0, 60), noisy(generator, 2.0, 60))
        false_alarms += not found.low <= 1.0 <= found.high
    assert false_alarms <= 20


def test_a_difference_beyond_the_noise_is_found_with_its_size() -> None:
    generator = np.random.default_rng(1)
    found = ratio_interval(noisy(generator, 3.0, 60), noisy(generator, 2.0, 60))
    assert found.low > 1.3
    assert found.median == pytest.approx(1.5, abs=0.1)


def test_drift_that_meets_both_of_a_pair_cancels() -> None:
    drift = np.linspace(1.0, 4.0, 50)
    found = ratio_interval(list(2.0 * drift), list(1.0 * drift))
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)


def test_a_level_decides_which_of_the_ordered_pairs_are_the_ends() -> None:
    ratios = [1.0 + number / 100 for number in range(10)]
    wide = ratio_interval(ratios, [1.0] * 10, level=0.002)
    assert (wide.low, wide.high) == (ratios[0], ratios[-1])
    # Two of ten on one side of the median have a chance of 2 * (1 + 10) / 1024 = 2.1 %.
    narrow = ratio_interval(ratios, [1.0] * 10, level=0.05)
    assert (narrow.low, narrow.high) == (ratios[1], ratios[-2])


def test_too_few_pairs_for_a_level_claim_no_more_than_their_range() -> None:
    found = ratio_interval([1.1, 1.2, 1.3], [1.0, 1.0, 1.0], level=0.002)
    assert found.low < 1.0
    assert found.high > 1.3


def test_noise_that_lasts_widens_the_interval() -> None:
    generator = np.random.default_rng(2)
    quick = generator.normal(0.0, 0.01, 200)
    slow = np.repeat(generator.normal(0.0, 0.01, 10), 20)
    assert independent(list(quick)) > 150
    assert independent(list(slow)) < 60
    calm = ratio_interval(list(np.exp(quick)), [1.0] * 200)
    moody = ratio_interval(list(np.exp(slow)), [1.0] * 200)
    assert moody.high - moody.low > 2 * (calm.high - calm.low)


def test_an_order_effect_is_no_memory() -> None:
    generator = np.random.default_rng(3)
    turns = np.tile([0.02, -0.02], 100) + generator.normal(0.0, 0.001, 200)
    assert independent(list(turns)) > 150


@given(TIMES)
def test_the_interval_holds_the_median_and_repeats(times: list[float]) -> None:
    other = times[::-1]
    found = ratio_interval(times, other)
    assert found == ratio_interval(times, other)
    assert found.low <= found.median <= found.high
    ratios = [a / b for a, b in zip(times, other, strict=True)]
    assert found.median == pytest.approx(median(ratios))


@given(TIMES)
def test_percentiles_are_ordered(times: list[float]) -> None:
    assert percentile(times, 10) <= median(times) <= percentile(times, 90)


@pytest.mark.parametrize(("top", "bottom"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_what_is_no_pair_of_timings_is_refused(top: list[float], bottom: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|above 0"):
        ratio_interval(top, bottom)
