"""The statistics of timings: medians, intervals of ratios, and when a comparison has seen enough.

Medians throughout, because the noise of a timing is one-sided and heavy. No torch here.

`Sequence95` decides when to stop, so that looking often does not make a difference out of none. The
ratios are looked at after fixed numbers of pairs, each time with an interval of its own; the
chances that any of them misses add up to at most 5 %. So the interval at which a comparison stops
is one of at least 95 %, whatever made it stop. Looks on the way are strict and cost the last one
little (Haybittle 1971, Peto et al. 1976: "stopping rules for interim analyses"; the sum is
Bonferroni's). A comparison that ends because its time is over takes what is left for its last look,
as the clock does not know the ratio. A finalist's goes on beyond its time while its interval is too
wide to settle anything or the machine is busy: a rule that looks at the width alone, and not at
which side of 1 it lies on, leaves the chance to miss as it is (Y. S. Chow and H. Robbins, On the
asymptotic theory of fixed-width sequential confidence intervals, Annals of Mathematical Statistics
36, 1965).

`take_pairs` takes pairs of timings of two implementations until then. In turns A B B A, so that
drift meets both alike; block by block, so that a block in which the device did not hold still can
be dropped and taken again, a bounded number of times.
"""

import time
from collections.abc import Callable, Sequence
from math import comb, inf

import numpy as np

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.conditions import Company, telemetry, unsteady
from kernelwright.tools.types.measurement import Clock, Comparison, Conditions, Paired
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


LEVEL = 0.05


# A finalist that settles nothing gets so many times the usual pairs, if its time allows.
_PATIENT = 4


def looks(rules: Rules, *, patient: bool = False) -> tuple[int, ...]:
    """After how many pairs to look: from the fewest, twice as many each time, and at the last."""
    found, pairs, most = [], rules.pairs_min, rules.pairs_max * (_PATIENT if patient else 1)
    while pairs < most:
        found.append(pairs)
        pairs *= 2
    return (*found, most)


class Sequence95:
    """One comparison's looks, and the interval at the last of them.

    Args:
        rules: How many pairs, and what is precise enough.
        noise: What a comparison of a baseline with itself was off by, as a share of 1.
        beyond: An interval wholly above this is of a baseline that is not the hardest to beat.
        patient: More pairs than usual may be taken.
    """

    def __init__(
        self, rules: Rules, noise: float, beyond: float = inf, *, patient: bool = False
    ) -> None:
        self._beyond = beyond
        self._rules = rules
        self._noise = noise
        self._left = list(looks(rules, patient=patient))
        self.most = self._left[-1]
        self._spent = 0.0

    @property
    def next_look(self) -> int:
        """After how many pairs to look again."""
        return self._left[0]

    def is_enough(self, baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> bool:
        """Look at the pairs there are, and say whether more would change nothing."""
        self._left.pop(0)
        if not self._left:
            return True
        level = self._rules.look_level
        found = ratio_interval(baseline_ms, candidate_ms, level=level)
        if settled(found, self._rules, self._noise, self._beyond):
            return True
        self._spent += level
        return False

    def goes_on(self) -> bool:
        """That a look was enough and more pairs are taken all the same; whether there are none."""
        self._spent += self._rules.look_level
        return not self._left

    def is_wide(self, baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> bool:
        """Whether the interval that would be reported now settles nothing."""
        found = self.interval(baseline_ms, candidate_ms, early=False)
        return found.high - found.low > self._rules.settled_width * found.median

    def interval(
        self, baseline_ms: Sequence[float], candidate_ms: Sequence[float], *, early: bool
    ) -> RatioInterval:
        """The interval to report; `early` says that a look ended it, not pairs or time."""
        level = self._rules.look_level if early else LEVEL - self._spent
        return ratio_interval(baseline_ms, candidate_ms, level=level)


def settled(found: RatioInterval, rules: Rules, noise: float, beyond: float = inf) -> bool:
    """Whether an interval is narrow, and on one side of 1 or within what counts as equal.

    Narrow is wider beside a baseline that another one was seen to beat (`beyond`): the headline is
    not against it.
    """
    width = rules.behind_width if found.low > beyond else rules.interval_width
    if found.high - found.low > width * found.median:
        return False
    apart = found.low > 1.0 + noise or found.high < 1.0 / (1.0 + noise)
    equal = found.low > 1.0 - rules.equal_share and found.high < 1.0 + rules.equal_share
    return apart or equal


Sample = Callable[[], float]


class Pairs(Value):
    """What two implementations took, pair by pair, and how the machine was meanwhile."""

    baseline_ms: tuple[float, ...]
    candidate_ms: tuple[float, ...]
    interval: RatioInterval
    retaken: int = 0
    unsteady: int = 0
    others_share: float | None = None
    notes: tuple[str, ...] = ()

    def paired(self, noise: float = 0.0) -> Paired:
        """What is reported of them; see `Paired.noise`."""
        return Paired(
            candidate_ms=median(self.candidate_ms),
            baseline_ms=median(self.baseline_ms),
            ratio=self.interval.median,
            ci95_low=self.interval.low,
            ci95_high=self.interval.high,
            pairs=len(self.candidate_ms),
            noise=noise,
        )

    def beside(
        self, baseline: str, conditions: Conditions, clock: Clock, noise: float = 0.0
    ) -> Comparison:
        """The same as a comparison with that baseline, with all samples."""
        return Comparison(
            **dict(self.paired(noise)),
            baseline=baseline,
            candidate_samples_ms=self.candidate_ms,
            baseline_samples_ms=self.baseline_ms,
            conditions=conditions,
            clock=clock,
        )


def take_pairs(
    baseline: Sample,
    candidate: Sample,
    *,
    device: str,
    rules: Rules,
    seconds: float,
    noise: float,
    beyond: float = inf,
    patience_s: float = 0.0,
) -> Pairs:
    """Pairs until the interval is settled, the time is over or there are `rules.pairs_max`.

    Args:
        baseline: times one call of it, in milliseconds, under cold caches.
        candidate: likewise.
        device: `cuda` or `cpu`.
        rules: how many pairs, when to look, what is unsteady.
        seconds: after this long no further pair is begun, once there are `rules.pairs_min`.
        noise: see `Paired.noise`.
        beyond: see `Sequence95`.
        patience_s: where the interval is too wide by then, or the machine busy, pairs go on until
            so many seconds have passed in all.
    """
    looks = Sequence95(rules, noise, beyond, patient=patience_s > seconds)
    return _Taking(baseline, candidate, device, rules, looks).until(seconds, patience_s)


class _Taking:
    """One comparison under way."""

    def __init__(
        self, baseline: Sample, candidate: Sample, device: str, rules: Rules, looks: Sequence95
    ) -> None:
        self._baseline, self._candidate = baseline, candidate
        self._rules = rules
        self._telemetry = telemetry(device)
        self._block = rules.steady_pairs if device.startswith("cuda") else 2
        self._looks = looks
        self._top: list[float] = []
        self._bottom: list[float] = []
        self._retakes = self._retaken = self._unsteady = 0
        self._why = ""

    def until(self, seconds: float, patience_s: float) -> Pairs:
        """Take pairs; see `take_pairs`."""
        company, start, early = Company(), time.monotonic(), False
        before = self._telemetry.read()
        while not early and len(self._top) < self._looks.most:
            count = min(self._block, self._looks.next_look - len(self._top))
            block = [self._pair(len(self._top) + number) for number in range(count)]
            after = self._telemetry.read()
            if self._keeps(unsteady(before, after, self._rules.clock_moved_share), count):
                self._top += [top for top, _ in block]
                self._bottom += [bottom for _, bottom in block]
            before = after
            if len(self._top) == self._looks.next_look:
                early = self._looks.is_enough(self._top, self._bottom)
            spent_s = time.monotonic() - start
            if early and spent_s < patience_s and self._is_busy(company):
                early = self._looks.goes_on()
            over = len(self._top) >= self._rules.pairs_min and spent_s > seconds
            if over and (spent_s > patience_s or self._settles(company)):
                break
        whole = len(self._top) == self._looks.most
        return self._pairs(company, early=early and not whole)

    def _settles(self, company: Company) -> bool:
        """Whether what there is says enough, on a machine that was quiet enough."""
        return not self._is_busy(company) and not self._looks.is_wide(self._top, self._bottom)

    def _is_busy(self, company: Company) -> bool:
        return (company.share() or 0.0) > self._rules.busy_share

    def _pair(self, number: int) -> tuple[float, float]:
        if number % 2 == 0:
            top = self._baseline()
            return top, self._candidate()
        bottom = self._candidate()
        return self._baseline(), bottom

    def _keeps(self, why: str, count: int) -> bool:
        """Whether a block counts: a steady one, or one more unsteady one than may be retaken."""
        if not why:
            return True
        self._why = why
        if self._retakes < self._rules.retakes_max:
            self._retakes += 1
            self._retaken += count
            return False
        self._unsteady += count
        return True

    def _pairs(self, company: Company, *, early: bool) -> Pairs:
        notes: tuple[str, ...] = ()
        if self._unsteady:
            notes = (f"{self._unsteady} of {len(self._top)} pairs were not steady: {self._why}",)
        elif self._retaken:
            notes = (f"{self._retaken} pairs were taken again: {self._why}",)
        return Pairs(
            baseline_ms=tuple(self._top),
            candidate_ms=tuple(self._bottom),
            interval=self._looks.interval(self._top, self._bottom, early=early),
            retaken=self._retaken,
            unsteady=self._unsteady,
            others_share=company.share(),
            notes=notes,
        )
