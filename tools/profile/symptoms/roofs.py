"""How near to the ceilings a candidate is, and which of them is its own."""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.lookup import Readings
from kernelwright.tools.profile.symptoms.thresholds import (
    ANOTHER_ROOF,
    AT_THE_ROOF,
    EXTRA_TRAFFIC,
    FAR_FROM_THE_ROOF,
    NOISY,
    PIPE_BUSY,
)
from kernelwright.tools.types import Evidence, Symptom


def at_the_roof(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Little is left to win under the highest ceiling that applies."""
    roofs = (
        ("bandwidth_fraction", "memory bandwidth"),
        ("rate_fraction", "fp32 arithmetic"),
        ("tensor_rate_fraction", "the tensor cores' dense fp16 rate"),
    )
    near = [
        (item, value, words)
        for name, words in roofs
        if (item := readings.named(name)) is not None
        # Far above a ceiling it is not the one that applies.
        and AT_THE_ROOF <= (value := item.value or 0.0) <= ANOTHER_ROOF
    ]
    if not near:
        return None
    item, value, words = max(near, key=lambda row: row[1])
    return Symptom(
        name="at the roof",
        words=f"runs at {value:.0%} of {words}: little is left to win",
        evidence=(item,),
    )


def far_from_both(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Neither bytes nor arithmetic explain the time."""
    bandwidth, rate = readings.named("bandwidth_fraction"), readings.named("rate_fraction")
    if bandwidth is None or rate is None:
        return None
    if max(bandwidth.value or 0, rate.value or 0) >= FAR_FROM_THE_ROOF:
        return None
    return Symptom(
        name="far from both roofs",
        words=f"{bandwidth.value:.0%} of bandwidth and {rate.value:.0%} of arithmetic: latency, "
        "extra traffic or launches hold it up",
        evidence=(bandwidth, rate),
        points_to=("memory", "latency", "parallelism"),
    )


def below_the_roof(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Bandwidth is the limit and is not reached; counters, where there are any, say why."""
    bandwidth = readings.named("bandwidth_fraction")
    if bandwidth is None or not FAR_FROM_THE_ROOF <= (bandwidth.value or 0) < AT_THE_ROOF:
        return None
    if readings.named("dram_traffic") is not None:
        why = "see what moves and what waits"
    else:
        why = "either bytes move twice or too few loads are in flight"
    return Symptom(
        name="below the roof",
        words=f"{bandwidth.value:.0%} of the bandwidth at the floor's byte count: {why}",
        evidence=(bandwidth,),
        points_to=("memory", "parallelism"),
    )


def extra_traffic(readings: Readings, hardware: Hardware) -> Symptom | None:
    """DRAM carries more than the inputs and outputs once."""
    moved, floor = readings.named("dram_traffic"), readings.named("floor_bytes")
    if moved is None or floor is None or not floor.value or moved.value is None:
        return None
    ratio = moved.value / floor.value
    if ratio < EXTRA_TRAFFIC:
        return None
    return Symptom(
        name="extra traffic",
        words=f"memory carries {ratio:.2f} times the bytes that must move "
        f"({moved.value / 1e6:.4g} MB of {floor.value / 1e6:.4g} MB): something is read or "
        "written again",
        evidence=(moved, floor),
        points_to=("fusion", "memory", "algebra"),
    )


def cache_resident(readings: Readings, hardware: Hardware) -> Symptom | None:
    """All of the task fits into the last-level cache."""
    reading = readings.named("working_set_per_cache")
    if reading is None or (reading.value or 0) >= 1.0:
        return None
    return Symptom(
        name="cache resident",
        words=f"the working set is {reading.value:.0%} of the last-level cache, so the bandwidth "
        "of memory is not the limit",
        evidence=(reading,),
        points_to=("arithmetic", "latency"),
    )


def without_tensor_cores(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Arithmetic is the limit, and the fastest units for it stand idle."""
    rate, code = readings.named("rate_fraction"), tuple(readings.each("code_instructions"))
    if rate is None or (rate.value or 0) < FAR_FROM_THE_ROOF or hardware.tensor_tflops is None:
        return None
    if not code or tuple(readings.each("tensor_instructions")):
        return None
    return Symptom(
        name="no tensor cores",
        words=f"{rate.value:.0%} of the plain fp32 rate, and no tensor-core instruction in "
        f"{', '.join(kernel for kernel, _, _ in code)}",
        evidence=(rate, code[0][1]),
        points_to=("arithmetic",),
    )


def busy_pipe(readings: Readings, hardware: Hardware) -> Symptom | None:
    """A unit that few kernels need is the limit."""
    for name, what in (("xu_fraction", "special functions"), ("fp64_fraction", "double precision")):
        for kernel, item, value in readings.each(name):
            if value >= PIPE_BUSY:
                return Symptom(
                    name="busy pipe",
                    words=f"{kernel} keeps the unit of {what} at {value:.0%}: compute with others",
                    evidence=(item,),
                    points_to=("arithmetic",),
                )
    return None


def noisy(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Timings that say little."""
    spread: Evidence | None = readings.named("spread")
    if spread is None or (spread.value or 0) < NOISY:
        return None
    return Symptom(
        name="noisy",
        words=f"timings spread over {spread.value:.0%} of their median",
        evidence=(spread,),
    )
