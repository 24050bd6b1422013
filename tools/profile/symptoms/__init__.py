"""Named patterns in the evidence, each with the kinds of ideas that usually help.

Each is a function from readings and hardware to a symptom, or None where it does not show or its
readings are missing; they stand by what they are about, memory, waiting or the device's clocks, and
the thresholds in `readings`. Worked out before any model reads a number. What needs counters stays
silent without them; what they say that a symptom is worth stands in `counted`.

What casts doubt on the timings themselves comes before what bounds a kernel: where the machine was
busy, a bound is read off times that say little. The first of that order is the headline.
"""

from collections.abc import Callable, Iterable

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile.symptoms import clocks, memory, waiting
from kernelwright.tools.profile.symptoms.counted import by_rule, weighed
from kernelwright.tools.profile.symptoms.readings import Readings
from kernelwright.tools.types import Evidence, Symptom

Find = Callable[[Readings, Hardware], Symptom | None]


def symptoms(evidence: tuple[Evidence, ...], hardware: Hardware) -> tuple[Symptom, ...]:
    """Every pattern that the evidence shows, the most important first."""
    readings = Readings(evidence)
    found = (find(readings, hardware) for find in _TABLE)
    named = tuple(weighed(symptom, readings) for symptom in found if symptom is not None)
    ruled = by_rule(readings, hardware)
    # A rule that a symptom stands for already is not told twice.
    if ruled is None or any(item.worth == ruled.worth for item in named):
        return named
    return (*named, ruled)


# Of the measurement, not of the kernel.
_DOUBTS = ("busy machine", "preempted", "clocks moved", "too hot", "noisy")


def casts_doubt(symptom: Symptom) -> bool:
    """Whether it is about the timings' validity, so that what follows from them is in doubt."""
    return symptom.name in _DOUBTS


_LATER = ("clocks moved", "too hot", "out of power", "low clock")


def is_later(symptom: Symptom) -> bool:
    """Whether runs that are not steered by counters did not know it yet."""
    return symptom.name in _LATER or symptom.name.startswith("rule ")


def by_importance(found: Iterable[Symptom]) -> tuple[Symptom, ...]:
    """Doubts about the timings first, everything else as it was; older runs kept doubts last."""
    return tuple(sorted(found, key=lambda symptom: not casts_doubt(symptom)))


def headline(found: Iterable[Symptom]) -> str:
    """The most important sentence of a profile; "" where nothing telling was found."""
    first = next(iter(by_importance(found)), None)
    return f"{first.words[:1].upper()}{first.words[1:]}." if first else ""


# First whether the times can be trusted; then what was measured or is certain comes before what a
# ratio suggests.
_TABLE: tuple[Find, ...] = (
    waiting.busy_machine,
    waiting.preempted,
    clocks.moved,
    clocks.too_hot,
    memory.noisy,
    memory.spills,
    memory.at_the_roof,
    clocks.out_of_power,
    memory.extra_traffic,
    memory.uncoalesced,
    memory.bank_conflicts,
    waiting.stalls,
    waiting.waits_for_memory,
    waiting.misses_pages,
    waiting.faults,
    waiting.mispredicts,
    waiting.waits_for_instructions,
    waiting.launch_bound,
    waiting.not_vectorised,
    waiting.idle_threads,
    memory.cache_resident,
    memory.l2_resident,
    waiting.low_occupancy,
    waiting.tail,
    waiting.unbalanced,
    waiting.divergent,
    memory.without_tensor_cores,
    memory.busy_pipe,
    memory.local_arrays,
    memory.narrow,
    clocks.low_clock,
    memory.far_from_both,
    memory.below_the_roof,
)
