"""Symptoms of waiting: what warps, blocks, launches and a CPU's processors wait for.

What a CPU's processors wait for is silent without counters of a CPU.
"""

from math import ceil

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.readings import (
    FAULT_SHARE,
    FRONTEND_SHARE,
    IDLE_THREADS,
    LAUNCH_SHARE,
    LOW_IPC,
    LOW_OCCUPANCY,
    MISPREDICTION_SHARE,
    MISSED_BANDWIDTH,
    PACKED_SHARE,
    PREEMPTED,
    STALL_SHARE,
    TAIL_LOSS,
    THREADS_AT_WORK,
    TLB_SHARE,
    UNBALANCED,
    Readings,
)
from kernelwright.tools.types import Symptom
from kernelwright.tools.types.measurement import BUSY_SHARE

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


def waits_for_memory(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Loads miss the last cache, and the instructions behind them stand still."""
    missed, rate = readings.named("missed_bandwidth"), readings.named("instructions_per_cycle")
    if missed is None or rate is None or (rate.value or 0) >= LOW_IPC:
        return None
    share = (missed.value or 0) / hardware.bandwidth_gb_s
    if share < MISSED_BANDWIDTH:
        return None
    return Symptom(
        name="memory-bound",
        words=f"loads that miss the last-level cache bring {share:.0%} of memory's bandwidth, and "
        f"{rate.value:.2g} instructions finish in a cycle: touch memory once and in order",
        evidence=(missed, rate),
        points_to=("memory", "fusion"),
    )


def misses_pages(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Addresses are translated again and again."""
    share = readings.named("tlb_share")
    if share is None or (share.value or 0) < TLB_SHARE:
        return None
    rate = readings.named("tlb_miss_rate")
    return Symptom(
        name="TLB-bound",
        words=f"translating addresses takes about {share.value:.0%} of the cycles: walk along "
        "pages, not across them, or give the machine huge pages",
        evidence=(share, *((rate,) if rate else ())),
        points_to=("memory",),
    )


def mispredicts(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Branches go where nobody expected."""
    share = readings.named("misprediction_share")
    if share is None or (share.value or 0) < MISPREDICTION_SHARE:
        return None
    rate = readings.named("branch_miss_rate")
    return Symptom(
        name="branch-bound",
        words=f"mispredicted branches take about {share.value:.0%} of the cycles: compute both "
        "sides and select",
        evidence=(share, *((rate,) if rate else ())),
        points_to=("arithmetic", "algebra"),
    )


def waits_for_instructions(readings: Readings, hardware: Hardware) -> Symptom | None:
    """The processor decodes too slowly for what it could compute."""
    share = readings.named("frontend_share")
    if share is None or (share.value or 0) < FRONTEND_SHARE:
        return None
    return Symptom(
        name="front-end bound",
        words=f"{share.value:.0%} of the cycles wait for instructions: a smaller loop, wider "
        "vectors, fewer branches",
        evidence=(share,),
        points_to=("arithmetic", "parallelism"),
    )


def faults(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Fresh memory is paid for in every call."""
    share, count = readings.named("fault_share"), readings.named("page_faults")
    if share is None or count is None or (share.value or 0) < FAULT_SHARE:
        return None
    return Symptom(
        name="page faults",
        words=f"{count.value:.0f} page faults take about {share.value:.0%} of the call "
        f"({share.source.rpartition('; ')[2]}): allocate less, or let the machine use huge pages",
        evidence=(share, count),
        points_to=("memory", "fusion"),
    )


def idle_threads(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Cores of the machine have nothing to do."""
    busy = readings.named("busy_threads")
    if busy is None or not hardware.cores or hardware.cores < 2:
        return None
    share = (busy.value or 0) / hardware.cores
    if share >= IDLE_THREADS or (readings.value("preemptions") or 0) >= PREEMPTED:
        return None
    return Symptom(
        name="idle cores",
        words=f"{busy.value:.2g} threads are at work on {hardware.cores} cores: share the loop out "
        "among them, or balance its parts",
        evidence=(busy,),
        points_to=("parallelism",),
    )


def preempted(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Other processes want the same cores: what was timed is their quarrel."""
    count, busy = readings.named("preemptions"), readings.named("busy_threads")
    if count is None or (count.value or 0) < PREEMPTED:
        return None
    return Symptom(
        name="preempted",
        words=f"{count.value:.0f} times a call a thread lost its core to another process: the "
        "machine is busy, and times say little",
        evidence=(count, *((busy,) if busy else ())),
    )


def busy_machine(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Other processes had a good part of the processors while it was timed."""
    share = readings.named("others_share")
    if share is None or (share.value or 0) <= BUSY_SHARE:
        return None
    return Symptom(
        name="busy machine",
        words=f"other processes used {share.value:.0%} of the processors during the timing: the "
        "machine is busy, and times say little",
        evidence=(share,),
    )
