"""When a comparison stops, and what it drops: real takers of pairs on made-up clocks."""

from collections.abc import Callable, Iterator
from math import inf

import numpy as np
import pytest

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing import statistics as paired
from kernelwright.tools.evaluate.timing.conditions import (
    Company,
    TelemetryReading,
    telemetry,
    unsteady,
)
from kernelwright.tools.evaluate.timing.statistics import LEVEL, Pairs, looks, take_pairs
from kernelwright.tools.evaluate.timing.stopwatch import input_sets
from kernelwright.tools.types import Comparison, Conditions

RULES = Rules()
FOREVER_S = 1e9


def sampler(true_ms: float, spread: float, seed: int) -> Callable[[], float]:
    generator = np.random.default_rng(seed)
    return lambda: true_ms * (1 + spread * float(generator.pareto(2.5)))


def taken(
    ratio: float, spread: float, seed: int = 0, rules: Rules = RULES, beyond: float = inf
) -> Pairs:
    return take_pairs(
        sampler(ratio, spread, 2 * seed),
        sampler(1.0, spread, 2 * seed + 1),
        device="cpu",
        rules=rules,
        seconds=FOREVER_S,
        noise=0.0,
        beyond=beyond,
    )


def test_a_baseline_that_another_one_beats_by_far_takes_fewer_pairs_for_as_sure_an_answer() -> None:
    alone, behind = taken(2.0, 0.05), taken(2.0, 0.05, beyond=1.3)
    assert len(behind.baseline_ms) < len(alone.baseline_ms)
    assert 1.3 < behind.interval.low <= 2.0 <= behind.interval.high * 1.05
    # What may yet be the hardest to beat is looked at as closely as ever.
    rival = taken(2.0, 0.05, beyond=1.99)
    assert len(rival.baseline_ms) == len(alone.baseline_ms)
    # And one on no side of 1 is not done with because another one is harder.
    near = taken(1.0, 0.3, beyond=0.5)
    assert len(near.baseline_ms) == len(taken(1.0, 0.3).baseline_ms)


def test_the_chances_to_miss_at_all_looks_together_stay_within_five_percent() -> None:
    assert looks(RULES) == (10, 20, 40, 80, 160, 200)
    assert (len(looks(RULES)) - 1) * RULES.look_level < LEVEL / 2


def test_a_clear_difference_ends_a_comparison_at_its_first_look() -> None:
    found = taken(1.5, 0.001)
    assert len(found.baseline_ms) == RULES.pairs_min
    assert 1.4 < found.interval.low <= found.interval.high < 1.6


def test_what_is_equal_for_practical_purposes_ends_it_as_well() -> None:
    found = taken(1.0, 0.001)
    assert len(found.baseline_ms) < RULES.pairs_max
    assert found.interval.low <= 1.0 <= found.interval.high


def test_a_small_difference_in_much_noise_takes_all_the_pairs_there_are() -> None:
    assert len(taken(1.02, 0.3).baseline_ms) == RULES.pairs_max


def test_looking_often_does_not_make_a_difference_out_of_none() -> None:
    claims = 0
    for seed in range(400):
        found = taken(1.0, 0.02, seed)
        claims += found.interval.low > 1.0 or found.interval.high < 1.0
    assert claims <= 20


def test_time_that_is_over_ends_it_with_an_honest_interval() -> None:
    found = take_pairs(
        sampler(1.2, 0.3, 0), sampler(1.0, 0.3, 1), device="cpu", rules=RULES, seconds=0, noise=0
    )
    assert len(found.baseline_ms) == RULES.pairs_min
    assert found.interval.low < found.interval.median < found.interval.high


class Readings:
    """A device that reads as told, then keeps its last state."""

    def __init__(self, *states: TelemetryReading) -> None:
        self._states: Iterator[TelemetryReading] = iter(states)
        self._last = states[-1]

    def read(self) -> TelemetryReading:
        return next(self._states, self._last)


STEADY = TelemetryReading(sm_clock_mhz=1980, memory_clock_mhz=3201)
SLOW = TelemetryReading(sm_clock_mhz=1500, memory_clock_mhz=3201)
HOT = TelemetryReading(
    sm_clock_mhz=1980, memory_clock_mhz=3201, throttled_by=("hw_thermal_slowdown",)
)


def test_pairs_during_which_a_clock_moved_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Readings(STEADY, SLOW, STEADY, STEADY)
    monkeypatch.setattr(paired, "telemetry", lambda _: readings)
    found = taken(1.5, 0.001)
    # Down and up again: two blocks were not steady.
    assert (found.retaken, found.unsteady) == (4, 0)
    assert len(found.baseline_ms) == RULES.pairs_min
    assert "clock moved" in found.notes[0]


def test_throttling_that_persists_is_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "telemetry", lambda _: Readings(HOT))
    found = taken(1.5, 0.001)
    assert found.retaken == 2 * RULES.retakes_max
    assert found.unsteady == RULES.pairs_min
    assert "hw_thermal_slowdown" in found.notes[0]


def test_small_moves_of_a_clock_and_unknown_ones_are_no_reason() -> None:
    assert not unsteady(STEADY, TelemetryReading(sm_clock_mhz=1965, memory_clock_mhz=3201), 0.03)
    assert not unsteady(TelemetryReading(), STEADY, 0.03)
    assert "SM clock" in unsteady(STEADY, SLOW, 0.03)


def test_the_cpu_has_no_clocks_to_read_but_tells_of_company() -> None:
    assert telemetry("cpu").read() == TelemetryReading()
    company = Company()
    assert company.share() is None  # too short to tell
    total = 0
    while company.share() is None:
        total += 1
    share = company.share()
    assert share is not None
    assert 0.0 <= share <= 1.0


@pytest.mark.parametrize("most", range(1, 12))
def test_in_turns_of_a_b_b_a_each_meets_every_set(most: int) -> None:
    count = input_sets(1, 1 << 20, most)
    met: tuple[set[int], set[int]] = (set(), set())
    for turn in range(8 * count):
        met[(turn % 4) in (1, 2)].add(turn % count)
    assert met[0] == met[1] == set(range(count))


def compared(low: float, high: float, noise: float = 0.0) -> Comparison:
    return Comparison(
        baseline="eager", candidate_ms=1.0, baseline_ms=1.0, ratio=(low * high) ** 0.5,
        ci95_low=low, ci95_high=high, pairs=10, candidate_samples_ms=(1.0,),
        baseline_samples_ms=(1.0,), noise=noise,
        conditions=Conditions(device="cpu", l2_flushed=True, input_sets=1),
    )  # fmt: skip


def test_what_does_not_clear_the_noise_of_the_session_cannot_be_told_apart() -> None:
    assert compared(1.01, 1.03).outcome == "faster"
    assert compared(0.90, 0.98).outcome == "slower"
    assert compared(0.99, 1.03).outcome == "not distinguishable"
    assert compared(1.01, 1.03, noise=0.02).outcome == "not distinguishable"
    assert not compared(0.985, 0.99, noise=0.02).distinguishable


def patiently(spread: float, patience_s: float, seed: int = 0) -> Pairs:
    return take_pairs(
        sampler(1.2, spread, 2 * seed),
        sampler(1.0, spread, 2 * seed + 1),
        device="cpu",
        rules=RULES,
        seconds=0.0,
        noise=0.0,
        patience_s=patience_s,
    )


def test_a_finalist_that_settles_nothing_gets_more_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Company, "share", lambda self: 0.0)
    hurried, patient = patiently(0.6, 0.0), patiently(0.6, FOREVER_S)
    assert len(hurried.baseline_ms) == RULES.pairs_min
    assert len(patient.baseline_ms) > RULES.pairs_min
    found = patient.interval
    enough = len(patient.baseline_ms) == looks(RULES, patient=True)[-1]
    assert enough or found.high - found.low <= RULES.settled_width * found.median
    # What is narrow at once needs no patience.
    assert len(patiently(0.001, FOREVER_S).baseline_ms) == RULES.pairs_min


def test_a_busy_machine_is_given_time_to_become_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.9, 0.5, 0.2])
    monkeypatch.setattr(Company, "share", lambda self: next(shares, 0.05))
    found = patiently(0.001, FOREVER_S)
    assert len(found.baseline_ms) >= RULES.pairs_min
    assert found.others_share == 0.05


def test_patience_does_not_make_a_difference_out_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Company, "share", lambda self: 0.0)
    claims = 0
    for seed in range(200):
        found = take_pairs(
            sampler(1.0, 0.1, 2 * seed),
            sampler(1.0, 0.1, 2 * seed + 1),
            device="cpu",
            rules=RULES,
            seconds=0.0,
            noise=0.0,
            patience_s=FOREVER_S,
        )
        claims += found.interval.low > 1.0 or found.interval.high < 1.0
    assert claims <= 10
