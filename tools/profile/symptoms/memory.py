"""How a candidate's kernels use the memories."""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.lookup import Readings
from kernelwright.tools.profile.symptoms.thresholds import (
    AT_THE_ROOF,
    BANK_CONFLICTS,
    FAR_FROM_THE_ROOF,
    L2_RESIDENT,
    NARROW_BYTES,
    SECTOR_BYTES,
    WASTED_SECTOR,
)
from kernelwright.tools.types import Symptom


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
