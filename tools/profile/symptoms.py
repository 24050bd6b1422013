"""Named patterns in the evidence, each with the kinds of ideas that usually help.

The thresholds are rules of thumb of the field and stand here, in one place: 90 % of a measured
ceiling leaves nothing to win, a memory-bound kernel under half of the bandwidth is held up by
something else, and occupancy under 25 % rarely hides a memory access.
"""

from collections.abc import Callable

from profiles.load import Hardware
from tools.nouns import Evidence, Symptom

AT_THE_ROOF = 0.90
FAR_FROM_THE_ROOF = 0.50
LOW_OCCUPANCY = 0.25
NOISY = 0.20

Find = Callable[[tuple[Evidence, ...], Hardware], Symptom | None]


def symptoms(evidence: tuple[Evidence, ...], hardware: Hardware) -> tuple[Symptom, ...]:
    """Every pattern that the evidence shows, the most telling first."""
    found = (find(evidence, hardware) for find in _TABLE)
    return tuple(symptom for symptom in found if symptom is not None)


def _spills(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    spilling = tuple(e for e in evidence if e.name.endswith(".spills") and (e.value or 0) > 0)
    if not spilling:
        return None
    total = sum(e.value or 0 for e in spilling)
    return Symptom(
        name="spills",
        words=f"{total:.0f} bytes of registers are spilled to local memory",
        evidence=spilling,
        points_to=("parallelism", "memory"),
    )


def _at_the_roof(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    reading = max(
        (e for e in evidence if e.name in ("bandwidth_fraction", "rate_fraction")),
        key=lambda e: e.value or 0.0,
        default=None,
    )
    if reading is None or (reading.value or 0) < AT_THE_ROOF:
        return None
    what = "memory bandwidth" if reading.name == "bandwidth_fraction" else "fp32 arithmetic"
    return Symptom(
        name="at the roof",
        words=f"runs at {reading.value:.0%} of {what}: little is left to win",
        evidence=(reading,),
    )


def _cache_resident(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    reading = _named(evidence, "working_set_per_cache")
    if reading is None or (reading.value or 0) >= 1.0:
        return None
    return Symptom(
        name="cache resident",
        words=f"the working set is {reading.value:.0%} of the last-level cache, so the bandwidth "
        "of memory is not the limit",
        evidence=(reading,),
        points_to=("arithmetic", "latency"),
    )


def _low_occupancy(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    low = tuple(
        e for e in evidence if e.name.endswith(".occupancy") and (e.value or 1.0) < LOW_OCCUPANCY
    )
    if not low:
        return None
    return Symptom(
        name="low occupancy",
        words=f"{low[0].name.split('.')[0]} holds {low[0].value:.0%} of a multiprocessor's "
        f"threads, {low[0].source}",
        evidence=low,
        points_to=("parallelism",),
    )


def _latency_bound(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    bandwidth, rate = _named(evidence, "bandwidth_fraction"), _named(evidence, "rate_fraction")
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


def _extra_traffic(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    bandwidth = _named(evidence, "bandwidth_fraction")
    if bandwidth is None or not FAR_FROM_THE_ROOF <= (bandwidth.value or 0) < AT_THE_ROOF:
        return None
    return Symptom(
        name="below the roof",
        words=f"{bandwidth.value:.0%} of the bandwidth at the floor's byte count: either bytes "
        "move twice or too few loads are in flight",
        evidence=(bandwidth,),
        points_to=("memory", "parallelism"),
    )


def _noisy(evidence: tuple[Evidence, ...], hardware: Hardware) -> Symptom | None:
    spread = _named(evidence, "spread")
    if spread is None or (spread.value or 0) < NOISY:
        return None
    return Symptom(
        name="noisy",
        words=f"timings spread over {spread.value:.0%} of their median",
        evidence=(spread,),
    )


def _named(evidence: tuple[Evidence, ...], name: str) -> Evidence | None:
    return next((e for e in evidence if e.name == name), None)


_TABLE: tuple[Find, ...] = (
    _spills,
    _at_the_roof,
    _cache_resident,
    _low_occupancy,
    _latency_bound,
    _extra_traffic,
    _noisy,
)
