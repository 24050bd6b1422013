"""Symptoms in what NVML said while a candidate was timed: clocks, power, heat."""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.readings import CLOCK_MOVED, LOW_CLOCK, Readings
from kernelwright.tools.types import Evidence, Symptom

# NVML's reasons for which a device holds itself back, as they stand in the source of `throttled`.
_POWER = ("power_cap", "power_brake", "sync_boost")
_HEAT = ("thermal",)


def _with(readings: Readings, *names: str) -> tuple[Evidence, ...]:
    return tuple(item for name in names if (item := readings.named(name)) is not None)


def _held_back(readings: Readings, words: tuple[str, ...]) -> Evidence | None:
    """The reading that the device held itself back, where one of these is a reason."""
    found = readings.named("throttled")
    said = found is not None and any(word in found.source for word in words)
    return found if said else None


def moved(readings: Readings, hardware: Hardware) -> Symptom | None:
    """The clock was another one in some of the timings that are compared."""
    spread = readings.named("sm_clock_spread")
    if spread is None or (spread.value or 0.0) < CLOCK_MOVED:
        return None
    return Symptom(
        name="clocks moved",
        words=f"the multiprocessors' clock differs by {spread.value:.0%} between its timings: "
        "times of one clock do not compare with those of another",
        evidence=(spread, *_with(readings, "sm_clock", "power")),
    )


def too_hot(readings: Readings, hardware: Hardware) -> Symptom | None:
    """The device slowed down for its temperature, which is no property of a kernel."""
    held = _held_back(readings, _HEAT)
    if held is None:
        return None
    return Symptom(
        name="too hot",
        words="the device slowed down for its temperature while this was timed: times say little",
        evidence=(held, *_with(readings, "temperature", "sm_clock")),
    )


def out_of_power(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Power is the ceiling: what switches less runs at a higher clock."""
    held = _held_back(readings, _POWER)
    if held is None:
        return None
    power, clock = readings.value("power"), readings.value("sm_clock")
    at = f" at {power:.0f} W" if power else ""
    at += f" and {clock:.0f} MHz" if clock else ""
    return Symptom(
        name="out of power",
        words=f"the device lowers its clock to stay within its power limit{at}: fewer "
        "instructions and fewer bytes for the same result let it run faster",
        evidence=(held, *_with(readings, "power", "sm_clock")),
        points_to=("arithmetic", "algebra", "fusion"),
    )


def low_clock(readings: Readings, hardware: Hardware) -> Symptom | None:
    """The clock was far below the highest, and nothing held it: locked, or hardly awake."""
    now, most = readings.named("sm_clock"), readings.value("sm_clock_most")
    if now is None or not most or readings.named("throttled") is not None:
        return None
    share = (now.value or 0.0) / most
    if share >= LOW_CLOCK:
        return None
    return Symptom(
        name="low clock",
        words=f"the multiprocessors ran at {share:.0%} of their highest clock without being held "
        "back: the clock is locked, or the calls are too short to wake the device",
        evidence=(now, *_with(readings, "sm_clock_most", "power")),
        points_to=("latency",),
    )
