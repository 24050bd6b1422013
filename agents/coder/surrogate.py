"""Guesses the time of settings that nobody measured, from those that somebody did.

A Gaussian process over the places of values among their tunable's, as what lies between two values
mostly behaves between them, with a length of its own for each tunable: how far one has to go along
it until times are another matter. Lengths are those under which the measurements are likeliest, out
of a few, so that a tunable without effect is soon left out. Logarithms of times are modelled.

What is asked next has the largest expected improvement over the best so far. Failures count as slow
as the slowest, so that their neighbourhood is left alone. With a hundred measurements and some
thousand settings a question takes milliseconds.
"""

from collections.abc import Sequence
from math import erf, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Lengths to choose among, in units of a tunable's whole range.
_LENGTHS = (0.15, 0.4, 1.0, 3.0, 12.0)
_FIRST_LENGTH = 0.4
_PASSES = 2
# The share of the variance that neighbours do not explain, timing noise included; to choose among.
_NOISES = (0.003, 0.03, 0.15)
# Times beyond this many times the best are all the same to a search.
_FAR = log(3.0)
_TINY = 1e-9
_LEAST_SPREAD = 1e-3


class Surrogate:
    """A model of one kernel's settings.

    Args:
        places: (measured, tunables): where each measured setting's values stand, from 0 to 1.
        log_times: their logarithms; infinite for failures, but not all of them.
    """

    def __init__(self, places: Array, log_times: Sequence[float]) -> None:
        known = np.asarray(log_times, dtype=np.float64)
        right = known[np.isfinite(known)]
        clipped = np.minimum(np.where(np.isfinite(known), known, right.max()), right.min() + _FAR)
        scale = max(float(clipped.std()), _LEAST_SPREAD)
        self._places = places
        self._values: Array = (clipped - clipped.mean()) / scale
        self._best = float(self._values.min())
        self._lengths, self._noise = _fitted(places, self._values)
        self._solve()

    def most_promising(self, places: Array, count: int) -> list[int]:
        """Which of the settings at those places to ask next, the first first.

        Each is chosen as if those before it had turned out as they are expected to.
        """
        chosen: list[int] = []
        across = _alike(places, self._places, self._lengths)
        while len(chosen) < min(count, len(places)):
            improvements = self._improvements(across)
            improvements[chosen] = -1.0
            at = int(improvements.argmax())
            chosen.append(at)
            if len(chosen) < count:
                self._believe(places[at], float(across[at] @ self._weights))
                new = _alike(places, places[at : at + 1], self._lengths)
                across = np.concatenate([across, new], axis=1)
        return chosen

    def _improvements(self, across: Array) -> Array:
        """The expected improvement over the best so far, in standard deviations of times."""
        gap = self._best - across @ self._weights
        solved = np.linalg.solve(self._lower, across.T)
        deviation = np.sqrt(np.maximum(1.0 - (solved**2).sum(axis=0), _TINY))
        ratio = gap / deviation
        found: Array = gap * _below(ratio) + deviation * np.exp(-0.5 * ratio**2) / sqrt(2.0 * pi)
        return found

    def _believe(self, place: Array, value: float) -> None:
        self._places = np.concatenate([self._places, place[None]])
        self._values = np.append(self._values, value)
        self._solve()

    def _solve(self) -> None:
        alike = _alike(self._places, self._places, self._lengths)
        self._lower = _factor(alike, self._noise)
        self._weights = _solved(self._lower, self._values)


def _fitted(places: Array, values: Array) -> tuple[Array, float]:
    """Lengths and noise, chosen one after the other by the likelihood of what was measured."""
    squares = np.moveaxis((places[:, None, :] - places[None, :, :]) ** 2, 2, 0)
    lengths: Array = np.full(places.shape[1], _FIRST_LENGTH)
    noise = _NOISES[1]
    total: Array = (squares / (lengths**2)[:, None, None]).sum(axis=0)
    best = _likelihood(total, noise, values)
    for _ in range(_PASSES):
        for at, square in enumerate(squares):
            without: Array = total - square / lengths[at] ** 2
            for length in _LENGTHS:
                tried: Array = without + square / length**2
                if (found := _likelihood(tried, noise, values)) > best:
                    best, total = found, tried
                    lengths[at] = length
        for other in _NOISES:
            if (found := _likelihood(total, other, values)) > best:
                best, noise = found, other
    return lengths, noise


def _likelihood(squares: Array, noise: float, values: Array) -> float:
    """The logarithm of the likelihood, but for what is the same for all."""
    lower = _factor(_matern(squares), noise)
    fit = float(values @ _solved(lower, values))
    return -0.5 * fit - float(np.log(np.diag(lower)).sum())


def _factor(alike: Array, noise: float) -> Array:
    return np.linalg.cholesky(alike + (noise + _TINY) * np.eye(len(alike))).astype(np.float64)


def _alike(one: Array, other: Array, lengths: Array) -> Array:
    """How alike the times at two places are, 1 at the same place."""
    return _matern((((one[:, None, :] - other[None, :, :]) / lengths) ** 2).sum(axis=2))


def _matern(squares: Array) -> Array:
    """Matern's correlation of smoothness 5/2, by the square of the distance in lengths."""
    distance = np.sqrt(5.0 * np.maximum(squares, 0.0))
    found: Array = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    return found


def _solved(lower: Array, values: Array) -> Array:
    found: Array = np.linalg.solve(lower.T, np.linalg.solve(lower, values))
    return found


def _below(values: Array) -> Array:
    """How likely a normal variable is below each of these."""
    return np.array([0.5 * (1.0 + erf(value / sqrt(2.0))) for value in values])
