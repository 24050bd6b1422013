"""Symptoms in how kernels use the memories, and in how near a candidate is to its ceilings.

Which of the ceilings is the candidate's own is decided here too.
"""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.readings import (
    ANOTHER_ROOF,
    AT_THE_ROOF,
    BANK_CONFLICTS,
    EXTRA_TRAFFIC,
    FAR_FROM_THE_ROOF,
    L2_RESIDENT,
    NARROW_BYTES,
    NOISY,
    PIPE_BUSY,
    SECTOR_BYTES,
    WASTED_SECTOR,
    Readings,
)
from kernelwright.tools.types import Evidence, Symptom


def spills(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Values that no register had room for."""
    spilling = tuple(item for _, item, value in readings.each("spills") if value > 0)
    if not spilling:
        return None
    total = sum(item.value or 0 for item in spilling)
    return Symptom(
        name="spills",
        words=f"{total:.0f} bytes of registers are spilled to local memory",
        evidence=spilling,
        points_to=("parallelism", "memory"),
    )


def local_arrays(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Local memory without spills: an array that is indexed by a variable."""
    for kernel, item, value in readings.each("local_accesses"):
        if value > 0 and not readings.of(kernel, "spills"):
            return Symptom(
                name="local arrays",
                words=f"{kernel} has {value:.0f} accesses to local memory and no spills: an array "
                "is indexed by what the compiler does not know; unroll the loop over it",
                evidence=(item,),
                points_to=("memory", "latency"),
            )
    return None


def uncoalesced(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Neighbouring threads touch memory that is not neighbouring."""
    for name, what in (("load_bytes_per_sector", "loads"), ("store_bytes_per_sector", "stores")):
        for kernel, item, value in readings.each(name):
            if 0 < value < WASTED_SECTOR * SECTOR_BYTES:
                return Symptom(
                    name="uncoalesced",
                    words=f"{kernel} uses {value:.3g} of the {SECTOR_BYTES} bytes of a sector in "
                    f"its {what}: neighbouring threads should touch neighbouring elements",
                    evidence=(item,),
                    points_to=("memory",),
                )
    return None


def narrow(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Many small accesses where few wide ones would do."""
    bandwidth = readings.value("bandwidth_fraction")
    if bandwidth is None or bandwidth >= AT_THE_ROOF:
        return None
    for name, what in (("load_width", "loads"), ("store_width", "stores")):
        for kernel, item, value in readings.each(name):
            if value < NARROW_BYTES:
                return Symptom(
                    name="narrow accesses",
                    words=f"{what} of {kernel} move {value:.3g} bytes a thread; 16 need a quarter "
                    "of the instructions that 4 do",
                    evidence=(item,),
                    points_to=("memory",),
                )
    return None


def bank_conflicts(readings: Readings, hardware: Hardware) -> Symptom | None:
    """Threads of a warp wait for each other in shared memory."""
    for kernel, item, value in readings.each("shared_conflict_share"):
        if value >= BANK_CONFLICTS:
            return Symptom(
                name="bank conflicts",
                words=f"{value:.0%} of the shared memory's wavefronts of {kernel} are "
                "repetitions: pad or swizzle the layout",
                evidence=(item,),
                points_to=("memory", "latency"),
            )
    return None


def l2_resident(readings: Readings, hardware: Hardware) -> Symptom | None:
    """What is read again comes out of the L2, not out of memory."""
    for kernel, item, value in readings.each("l2_hit_rate"):
        dram = readings.named(f"{kernel}.dram_fraction")
        if value >= L2_RESIDENT and dram is not None and (dram.value or 0) < FAR_FROM_THE_ROOF:
            return Symptom(
                name="L2-resident",
                words=f"{value:.0%} of what {kernel} asks the L2 for is there, and memory is busy "
                f"for {dram.value:.0%}: the L2's bandwidth and latency count, not memory's",
                evidence=(item, dram),
                points_to=("memory", "latency"),
            )
    return None


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
        words=f"timings spread over {spread.value:.0%} of their median, so smaller differences "
        "say little",
        evidence=(spread,),
    )
