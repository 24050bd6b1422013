"""Takes pairs of timings of two implementations until the comparison has seen enough.

In turns A B B A, so that drift meets both alike; block by block, so that a block in which the
device did not hold still can be dropped and taken again, a bounded number of times.
"""

import time
from collections.abc import Callable
from math import inf

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.sequential import Sequence95
from kernelwright.tools.evaluate.timing.statistics import RatioInterval
from kernelwright.tools.evaluate.timing.telemetry import Company, telemetry, unsteady
from kernelwright.tools.types.value import Value

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


def take_pairs(
    baseline: Sample,
    candidate: Sample,
    *,
    device: str,
    rules: Rules,
    seconds: float,
    noise: float,
    beyond: float = inf,
) -> Pairs:
    """Pairs until the interval is settled, the time is over or there are `rules.pairs_max`.

    Args:
        baseline: times one call of it, in milliseconds, under cold caches.
        candidate: likewise.
        device: `cuda` or `cpu`.
        rules: how many pairs, when to look, what is unsteady.
        seconds: after this long no further pair is begun, once there are `rules.pairs_min`.
        noise: see `Comparison.noise`.
        beyond: see `Sequence95`.
    """
    looks = Sequence95(rules, noise, beyond)
    return _Taking(baseline, candidate, device, rules, looks).until(seconds)


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

    def until(self, seconds: float) -> Pairs:
        """Take pairs; see `take_pairs`."""
        company, start, early = Company(), time.monotonic(), False
        before = self._telemetry.read()
        while not early and len(self._top) < self._rules.pairs_max:
            count = min(self._block, self._looks.next_look - len(self._top))
            block = [self._pair(len(self._top) + number) for number in range(count)]
            after = self._telemetry.read()
            if self._keeps(unsteady(before, after, self._rules.clock_moved_share), count):
                self._top += [top for top, _ in block]
                self._bottom += [bottom for _, bottom in block]
            before = after
            if len(self._top) == self._looks.next_look:
                early = self._looks.is_enough(self._top, self._bottom)
            if len(self._top) >= self._rules.pairs_min and time.monotonic() - start > seconds:
                break
        whole = len(self._top) == self._rules.pairs_max
        return self._pairs(company, early=early and not whole)

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
