"""What a candidate's warps, blocks and launches wait for."""

from math import ceil

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.lookup import Readings
from kernelwright.tools.profile.symptoms.thresholds import (
    LAUNCH_SHARE,
    LOW_OCCUPANCY,
    PACKED_SHARE,
    STALL_SHARE,
    TAIL_LOSS,
    THREADS_AT_WORK,
    UNBALANCED,
)
from kernelwright.tools.types import Symptom

# By ncu's name of the reason: what to call it, what it means, and which ideas help.
_STALLS = (
    ("stall_long_scoreboard", "latency-bound", "the answers of global or local memory: more loads "
     "in flight before the first use", ("memory", "parallelism", "latency")),
    ("stall_barrier", "barrier stalls", "the other warps at a barrier: fewer barriers, shuffles, "
     "smaller blocks", ("latency", "parallelism")),
    ("stall_short_scoreboard", "shared-memory latency", "shared memory or special functions: keep "
     "more in registers", ("latency", "arithmetic")),
    ("stall_mio_throttle", "queue of the memory units", "the queue of shared memory and special "
     "functions: fewer, wider accesses", ("latency", "memory")),
    ("stall_lg_throttle", "queue of global memory", "the queue of global memory: fewer, wider "
     "accesses", ("memory",)),
    ("stall_math_pipe_throttle", "arithmetic units", "a free arithmetic unit", ("arithmetic",)),
    ("stall_membar", "fences", "memory fences: fewer of them", ("latency",)),
    ("stall_no_instruction", "instruction fetch", "instructions: a smaller loop",
     ("latency",)),
)  # fmt: skip


def stalls(readings: Readings, hardware: Hardware) -> Symptom | None:
    """The one reason for which a kernel's warps wait most."""
    found = [
        (value, kernel, item, name, words, points_to)
        for reading, name, words, points_to in _STALLS
        for kernel, item, value in readings.each(reading)
        if value >= STALL_SHARE
    ]
    if not found:
        return None
    value, kernel, item, name, words, points_to = max(found, key=lambda row: row[0])
    return Symptom(
        name=name,
        words=f"warps of {kernel} wait {value:.0%} of their time for {words}",
        evidence=(item,),
        points_to=points_to,
    )


def low_occupancy(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Few warps are resident, and which resource runs out."""
    for kernel, item, value in readings.each("occupancy"):
        if value < LOW_OCCUPANCY:
            return Symptom(
                name="low occupancy",
                words=f"{kernel} holds {value:.0%} of a multiprocessor's threads, {item.source}",
                evidence=(item,),
                points_to=("parallelism",),
            )
    return None


def unbalanced(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Far fewer warps were there than could have been: blocks of different length, or too few."""
    for kernel, item, value in readings.each("achieved_occupancy"):
        possible = readings.named(f"{kernel}.theoretical_occupancy")
        if possible is not None and possible.value and value / possible.value < UNBALANCED:
            return Symptom(
                name="imbalance",
                words=f"{kernel} had {value:.0%} of a multiprocessor's warps where "
                f"{possible.value:.0%} fit: blocks differ in length, or are too few",
                evidence=(item, possible),
                points_to=("parallelism",),
            )
    return None


def tail(readings: Readings, hardware: Hardware) -> Symptom | None:
    """The last wave of blocks leaves much of the device idle."""
    for name in ("waves_per_sm", "waves"):
        for kernel, item, value in readings.each(name):
            if value > 0 and 1 - value / ceil(value) >= TAIL_LOSS:
                lost = 1 - value / ceil(value)
                what = "few blocks" if value < 1 else "tail effect"
                return Symptom(
                    name=what,
                    words=f"the blocks of {kernel} fill the device {value:.3g} times: up to "
                    f"{lost:.0%} of its time is idle",
                    evidence=(item,),
                    points_to=("parallelism",),
                )
    return None


def launch_bound(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Launching takes a good part of the call."""
    share, count = readings.named("launch_share"), readings.named("launches_per_call")
    if share is None or count is None or (share.value or 0) < LAUNCH_SHARE:
        return None
    return Symptom(
        name="launch bound",
        words=f"{count.value:.0f} launches cost up to {share.value:.0%} of the call: fewer "
        "kernels, or the last block finishes",
        evidence=(share, count),
        points_to=("latency", "fusion"),
    )


def divergent(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Threads of a warp go different ways."""
    for kernel, item, value in readings.each("threads_per_instruction"):
        if 0 < value < THREADS_AT_WORK:
            return Symptom(
                name="divergence",
                words=f"{value:.3g} of 32 threads of a warp are at work in {kernel}",
                evidence=(item,),
                points_to=("parallelism", "latency"),
            )
    return None


def not_vectorised(readings: Readings, hardware: Hardware) -> Symptom | None:
    """A C++ kernel that computes one element at a time."""
    packed, missed = readings.named("packed_share"), readings.named("missed_loops")
    if packed is None or missed is None or (packed.value or 0) >= PACKED_SHARE:
        return None
    if not missed.value:
        return None
    return Symptom(
        name="not vectorised",
        words=f"{missed.value:.0f} loops were not vectorised, and {packed.value:.0%} of the "
        f"floating-point instructions work on vectors ({missed.source})",
        evidence=(missed, packed),
        points_to=("arithmetic", "parallelism"),
    )
