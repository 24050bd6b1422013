"""What a CPU's processors wait for; silent without counters of a CPU."""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.lookup import Readings
from kernelwright.tools.profile.symptoms.thresholds import (
    FAULT_SHARE,
    FRONTEND_SHARE,
    IDLE_THREADS,
    LOW_IPC,
    MISPREDICTION_SHARE,
    MISSED_BANDWIDTH,
    PREEMPTED,
    TLB_SHARE,
)
from kernelwright.tools.types import Symptom


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
