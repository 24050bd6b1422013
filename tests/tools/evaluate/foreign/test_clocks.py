"""Three clocks over numbers as rounds give them: load is no lie, and a lie stays one."""

from kernelwright.tools.evaluate.foreign.clock_readings import ClockReading, ClockReadings
from kernelwright.tools.evaluate.foreign.timing import disagreement, noise, worked_ahead
from kernelwright.tools.evaluate.rules import Rules

CALLS = 20
PROCESSORS = 2.0


def rounds(call_ms, outside_ms, *, own_share=1.0, cpu_ms=0.0):
    """One reading for each pair of what a call took and what the protocol did."""
    return [
        ClockReading(
            calls=CALLS,
            wall_ms=CALLS * call + outside,
            own_ms=own_share * CALLS * call,
            cpu_ms=CALLS * call + cpu_ms,
        )
        for call, outside in zip(call_ms, outside_ms, strict=True)
    ]


def readings(candidate, *, call_ms, outside_ms, spun_ms=0.0):
    found = ClockReadings()
    found.nulls = rounds([0.01] * len(outside_ms), outside_ms)
    found.baseline = rounds(call_ms, outside_ms, cpu_ms=spun_ms)
    found.candidate = candidate
    return found


def said(found: ClockReadings) -> str:
    return disagreement(found, found.clocks(None), PROCESSORS, Rules())


QUIET = [0.5, 0.6, 0.5, 0.7, 0.5, 0.6, 0.5, 0.6, 0.7, 0.5]
BUSY = [4.0, 30.0, 6.0, 55.0, 9.0, 40.0, 5.0, 25.0, 60.0, 12.0]


def test_honest_clocks_on_a_quiet_machine_can_be_compared_and_agree():
    found = readings(rounds([1.0] * 10, QUIET), call_ms=[2.0] * 10, outside_ms=QUIET)
    assert noise(found) == ""
    assert said(found) == ""


def test_a_short_call_on_a_busy_machine_is_too_noisy_and_no_lie():
    found = readings(rounds([0.02] * 10, reversed(BUSY)), call_ms=[0.02] * 10, outside_ms=BUSY)
    assert "too noisy" in noise(found)
    assert said(found) == ""


def test_a_few_interrupted_rounds_leave_a_long_call_its_time():
    outside = [*QUIET[:8], 300.0, 500.0]
    found = readings(rounds([3.0] * 10, QUIET), call_ms=[2.0] * 10, outside_ms=outside)
    assert noise(found) == ""
    assert said(found) == ""


def test_a_call_that_seems_shorter_than_no_call_is_too_noisy():
    late = [outside + 10.0 for outside in BUSY]
    found = readings(rounds([0.02] * 10, QUIET), call_ms=[0.02] * 10, outside_ms=late)
    assert found.clocks(None).wall_ms < 0  # what once was held against the candidate
    assert "too noisy" in noise(found)
    assert said(found) == ""


def test_threads_that_spin_on_a_busy_machine_are_allowed_what_the_baseline_needed():
    spinning = rounds([1.0] * 10, QUIET, cpu_ms=150.0)
    calm = readings(spinning, call_ms=[2.0] * 10, outside_ms=QUIET)
    assert "did not see" in said(calm)
    busy = readings(spinning, call_ms=[2.0] * 10, outside_ms=QUIET, spun_ms=170.0)
    assert said(busy) == ""


def test_a_clock_that_misses_work_is_a_lie_on_a_quiet_and_on_a_busy_machine():
    for outside in (QUIET, BUSY):
        asleep = rounds([20.0] * 10, outside, own_share=0.001)
        found = readings(asleep, call_ms=[2.0] * 10, outside_ms=outside)
        assert noise(found) == ""
        assert "its own clock misses work" in said(found)


def test_a_clock_that_tells_more_than_all_there_was_is_a_lie():
    fast = rounds([1.0] * 10, QUIET, own_share=1.5)
    assert "does not tell the time" in said(
        readings(fast, call_ms=[2.0] * 10, outside_ms=QUIET),
    )


def test_one_disturbed_round_accuses_nobody():
    outside = [*QUIET[:9], 200.0]
    found = readings(rounds([1.0] * 10, outside), call_ms=[2.0] * 10, outside_ms=QUIET)
    assert said(found) == ""


def ahead_of_the_word(honest_ms: list[float], candidate_ms: list[float]) -> str:
    found = readings(rounds([1.0] * 10, QUIET), call_ms=[2.0] * 10, outside_ms=QUIET)
    found.baseline_ahead_ms, found.ahead_ms = honest_ms, candidate_ms
    return worked_ahead(found)


def test_work_before_the_word_go_is_found_in_the_kernels_books():
    assert "it works ahead" in ahead_of_the_word([0.0] * 10, [9.0] * 10)
    assert "it works ahead" in ahead_of_the_word(
        [0.0] * 10, [0.0, 0.9, 0.7, 0.0, 0.0, 0.8, 0.0, 1.1, 0.0, 0.0]
    )


def test_threads_that_spin_for_a_while_after_a_round_do_not_work_ahead():
    spins = [4.0, 0.0, 3.0, 0.0, 5.0, 0.0, 1.0, 0.0, 2.0, 6.0]
    assert ahead_of_the_word(spins, spins) == ""
    assert ahead_of_the_word([0.0] * 10, [0.0] * 7 + [30.0] * 3) == ""
    assert ahead_of_the_word([], []) == ""
