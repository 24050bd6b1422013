"""A model of settings finds the valley that the measurements point to."""

from itertools import product
from math import inf

import numpy as np
import pytest

from kernelwright.agents.coder.surrogate import Surrogate

GRID = np.array(list(product(np.linspace(0, 1, 9), np.linspace(0, 1, 5), (0.0, 1.0))))


def log_time(place: np.ndarray) -> float:
    """Best at (0.75, 0.25); the third tunable has no effect."""
    return float(2 * (place[0] - 0.75) ** 2 + (place[1] - 0.25) ** 2)


def test_the_optimum_is_found_with_a_fraction_of_the_questions() -> None:
    told = [0, 40, 89]
    while len(told) < 15:
        model = Surrogate(GRID[told], [log_time(GRID[at]) for at in told])
        left = [at for at in range(len(GRID)) if at not in told]
        told += [left[at] for at in model.most_promising(GRID[left], 4)]
    assert min(log_time(GRID[at]) for at in told) == pytest.approx(0.0)


def test_questions_asked_together_differ() -> None:
    model = Surrogate(GRID[:10], [log_time(place) for place in GRID[:10]])
    assert len({*model.most_promising(GRID[10:], 8)}) == 8


def test_failures_and_equal_times_do_not_break_it() -> None:
    for times in ([inf, 1.0, inf], [1.0, 1.0, 1.0], [0.0, 50.0, inf]):
        assert len(Surrogate(GRID[:3], times).most_promising(GRID[3:], 2)) == 2


def test_where_everything_failed_nearby_it_looks_elsewhere() -> None:
    places = np.array([[at / 10, 0.0, 0.0] for at in range(6)])
    times = [inf, inf, inf, 0.3, 0.2, 0.1]
    (first,) = Surrogate(places, times).most_promising(np.array([[0.05, 0, 0], [0.6, 0, 0]]), 1)
    assert first == 1
