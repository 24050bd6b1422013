"""A worker's account of its time."""

from kernelwright.tools.evaluate.process_setup import Meter
from kernelwright.tools.types.measurement import Phase, together


def test_each_phase_lasts_until_the_next_begins_and_is_handed_over_once() -> None:
    meter = Meter()
    meter.begin("verify")
    sum(range(200_000))
    meter.begin("time")
    meter.begin("verify")
    verify, time = meter.taken()
    assert (verify.name, verify.times) == ("verify", 2)
    assert (time.name, time.times) == ("time", 1)
    assert verify.cpu_s > 0
    assert verify.seconds >= 0
    assert meter.taken() == ()


def test_phases_of_one_name_are_added_up_in_the_order_they_came() -> None:
    phases = [Phase(name=name, seconds=1.5, cpu_s=1) for name in ("b: x", "a: y", "b: x")]
    first, second = together(phases)
    assert (first.name, first.part, first.seconds, first.cpu_s, first.times) == (
        "b: x", "b", 3.0, 2.0, 2
    )  # fmt: skip
    assert second == phases[1]
