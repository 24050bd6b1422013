"""Named patterns in the evidence, each with the kinds of ideas that usually help.

Worked out before any model reads a number. What needs counters stays silent without them. The
thresholds stand in `tools.profile.symptoms.readings`, the patterns in `tools.profile.symptoms`.
"""

from collections.abc import Callable

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms import memory, waiting
from kernelwright.tools.profile.symptoms import memory as roofs
from kernelwright.tools.profile.symptoms import waiting as host
from kernelwright.tools.profile.symptoms.readings import Readings
from kernelwright.tools.types import Evidence, Symptom

Find = Callable[[Readings, Hardware], Symptom | None]


def symptoms(evidence: tuple[Evidence, ...], hardware: Hardware) -> tuple[Symptom, ...]:
    """Every pattern that the evidence shows, the most telling first."""
    readings = Readings(evidence)
    found = (find(readings, hardware) for find in _TABLE)
    return tuple(symptom for symptom in found if symptom is not None)


# What was measured or is certain comes before what a ratio suggests.
_TABLE: tuple[Find, ...] = (
    memory.spills,
    roofs.at_the_roof,
    roofs.extra_traffic,
    memory.uncoalesced,
    memory.bank_conflicts,
    waiting.stalls,
    host.waits_for_memory,
    host.misses_pages,
    host.faults,
    host.mispredicts,
    host.waits_for_instructions,
    waiting.launch_bound,
    waiting.not_vectorised,
    host.idle_threads,
    roofs.cache_resident,
    memory.l2_resident,
    waiting.low_occupancy,
    waiting.tail,
    waiting.unbalanced,
    waiting.divergent,
    roofs.without_tensor_cores,
    roofs.busy_pipe,
    memory.local_arrays,
    memory.narrow,
    roofs.far_from_both,
    roofs.below_the_roof,
    roofs.noisy,
    host.preempted,
)
