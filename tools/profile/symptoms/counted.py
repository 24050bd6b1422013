"""What counters say a symptom is worth, and which settings to try because of it.

Nsight Compute's rules estimate how much faster a kernel could be. A symptom that a rule is about
takes the rule's estimate, times the kernel's share of the call; an estimate of one unit only counts
half. Where no rule speaks, the reading itself bounds what can be won: bytes beyond the floor's,
launches, the share of a warp's time that it waits. Bounds are not promises, so they count half too.

Settings are turned by a table: a kernel that waits for memory has more loads in flight, one that
spills fewer. Not covered: what the tuner's model makes of it, which has the last word.
"""

from collections.abc import Iterable, Mapping

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms.readings import TELLING_RULE, Readings
from kernelwright.tools.types import Evidence, Rank, Symptom

# What a bound, or an estimate of one unit, counts beside a rule's estimate of the kernel.
_BOUND = 0.5

# By symptom: rules of Nsight Compute that are about it, and tunables to turn.
_ABOUT: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "spills": ((), ("UNROLL-", "VECTOR-", "THREADS-")),
    "local arrays": ((), ("UNROLL+",)),
    "uncoalesced": (("UncoalescedGlobalAccess", "MemoryCacheAccessPattern"), ("VECTOR-", "TX+")),
    "narrow accesses": ((), ("VECTOR+",)),
    "bank conflicts": (("SharedMemoryConflicts", "UncoalescedSharedAccess"), ("PAD+", "VECTOR-")),
    "latency-bound": (("CPIStall",), ("UNROLL+", "STAGES+", "VECTOR+", "DEPTH+")),
    "barrier stalls": (("CPIStall",), ("THREADS-", "GROUP-")),
    "shared-memory latency": (("CPIStall",), ("UNROLL+", "THREADS-")),
    "queue of the memory units": (("CPIStall",), ("VECTOR+", "UNROLL-")),
    "queue of global memory": (("CPIStall",), ("VECTOR+", "UNROLL-")),
    "instruction fetch": (("CPIStall",), ("UNROLL-",)),
    "low occupancy": (("TheoreticalOccupancy",), ("UNROLL-", "THREADS-", "STAGES-")),
    "imbalance": (("AchievedOccupancy",), ("SPLITS+", "THREADS-")),
    "few blocks": (("LaunchConfiguration",), ("SPLITS+", "THREADS-", "UNROLL-")),
    "tail effect": (("LaunchConfiguration",), ("THREADS-", "UNROLL-", "SPLITS+")),
    "divergence": (("ThreadDivergence",), ()),
    "busy pipe": (("HighPipeUtilization",), ()),
}

# Rules that no symptom above stands for where they speak alone: idea categories, tunables.
_RULES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CPIStall": (("latency", "memory", "parallelism"), ("UNROLL+",)),
    "LaunchConfiguration": (("parallelism",), ("SPLITS+", "THREADS-")),
    "AchievedOccupancy": (("parallelism",), ("SPLITS+", "THREADS-")),
    "TheoreticalOccupancy": (("parallelism",), ("UNROLL-", "THREADS-")),
    "UncoalescedGlobalAccess": (("memory",), ("VECTOR-", "TX+")),
    "MemoryCacheAccessPattern": (("memory",), ("VECTOR+",)),
    "SharedMemoryConflicts": (("memory", "latency"), ("PAD+", "VECTOR-")),
    "UncoalescedSharedAccess": (("memory", "latency"), ("PAD+", "VECTOR-")),
    "ThreadDivergence": (("parallelism", "latency"), ()),
    "HighPipeUtilization": (("arithmetic",), ()),
    "FPInstructions": (("arithmetic",), ()),
}
_COUNTED = (Rank.MEASURED, Rank.DERIVED)


def weighed(symptom: Symptom, readings: Readings) -> Symptom:
    """The symptom with what it is worth, and with what to turn."""
    rules, turns = _ABOUT.get(symptom.name, ((), ()))
    kernel = _kernel(symptom)
    worth = _by_rules(readings, kernel, rules) if kernel else None
    worth = _by_reading(symptom, readings, kernel) if worth is None else worth
    return symptom.model_copy(update={"kernel": kernel, "worth": worth, "turns": turns})


def by_rule(readings: Readings, hardware: Hardware) -> Symptom | None:
    """What Nsight Compute's rules expect most of, of all kernels."""
    found = [
        (fraction * readings.share(kernel), rule, kernel, item)
        for rule in _RULES
        for kernel, item, _ in readings.each(f"rule_{rule}")
        if (fraction := _fraction(item)) >= TELLING_RULE
    ]
    if not found:
        return None
    worth, rule, kernel, item = max(found, key=lambda row: row[0])
    points_to, turns = _RULES[rule]
    return Symptom(
        name=f"rule {rule}",
        words=f"Nsight Compute expects {kernel} to be up to {item.value or 0.0:.0%} faster by its "
        f"rule {rule}, {worth:.0%} of the call: {item.source.partition(': ')[2]}",
        evidence=(item,),
        points_to=points_to,
        kernel=kernel,
        worth=worth,
        turns=turns,
    )


def _kernel(symptom: Symptom) -> str:
    named = (item.name.rpartition(".")[0] for item in symptom.evidence)
    return next(filter(None, named), "")


def _by_rules(readings: Readings, kernel: str, rules: Iterable[str]) -> float | None:
    said = (readings.named(f"{kernel}.rule_{rule}") for rule in rules)
    fractions = [_fraction(item) for item in said if item is not None]
    return max(fractions) * readings.share(kernel) if fractions else None


def _fraction(item: Evidence) -> float:
    """A rule's estimate; of a unit alone it says less of the kernel."""
    of_unit = "of the unit it looked at" in item.source
    return (item.value or 0.0) * (_BOUND if of_unit else 1.0)


def _by_reading(symptom: Symptom, readings: Readings, kernel: str) -> float | None:
    """What the reading bounds by itself; None where it does not, or nothing counted it."""
    first = symptom.evidence[0] if symptom.evidence else None
    if first is None or first.rank not in _COUNTED or first.value is None:
        return None
    if symptom.name == "extra traffic":
        floor = readings.value("floor_bytes") or 0.0
        return _BOUND * (1.0 - floor / first.value)
    if symptom.name == "launch bound":
        return _BOUND * first.value
    if ".stall_" in first.name or first.name.endswith(".shared_conflict_share"):
        return _BOUND * first.value * readings.share(kernel)
    return None
