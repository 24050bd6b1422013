"""The short list of hardware events, in passes of few, so that no processor has to take turns.

Numbers and names as in Linux's <linux/perf_event.h>, which never change. An event that a
processor lacks leaves its field None; what the generic ones count exactly differs between makers.
"""

from typing import NamedTuple

_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_L1D, _LAST_LEVEL, _DATA_TLB = 0, 2, 3
_READ = 0


class Event(NamedTuple):
    """Fills `field` of `HostCounters`; `name` is what `perf` calls it."""

    field: str
    name: str
    type: int
    config: int


def _cache(field: str, name: str, cache: int, *, missed: bool) -> Event:
    return Event(field, name, _CACHE, cache | _READ << 8 | int(missed) << 16)


CYCLES = Event("cycles", "cycles", _HARDWARE, 0)
INSTRUCTIONS = Event("instructions", "instructions", _HARDWARE, 1)
# Kept by the kernel itself: nanoseconds that the threads ran.
TASK_CLOCK = Event("cpu_ns", "task-clock", _SOFTWARE, 1)

# Processors count four to six things at a time, and the kernel's watchdog may hold one of them.
PASSES: tuple[tuple[Event, ...], ...] = (
    (
        TASK_CLOCK,
        CYCLES,
        INSTRUCTIONS,
        Event("branches", "branches", _HARDWARE, 4),
        Event("branch_misses", "branch-misses", _HARDWARE, 5),
    ),
    (
        _cache("llc_loads", "LLC-loads", _LAST_LEVEL, missed=False),
        _cache("llc_load_misses", "LLC-load-misses", _LAST_LEVEL, missed=True),
        Event("cache_misses", "cache-misses", _HARDWARE, 3),
    ),
    (
        _cache("tlb_loads", "dTLB-loads", _DATA_TLB, missed=False),
        _cache("tlb_load_misses", "dTLB-load-misses", _DATA_TLB, missed=True),
        _cache("l1_load_misses", "L1-dcache-load-misses", _L1D, missed=True),
    ),
    (
        Event("frontend_cycles", "stalled-cycles-frontend", _HARDWARE, 7),
        Event("backend_cycles", "stalled-cycles-backend", _HARDWARE, 8),
    ),
)
NAMES = {event.field: event.name for events in PASSES for event in events}
