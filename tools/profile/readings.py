"""Turns what the processors counted in a call into readings by name; none is of a single kernel.

Shares of time that follow from a count and a cost are estimates: processors overlap their waiting.
"""

from collections.abc import Iterator

from kernelwright.tools.profile.events import NAMES
from kernelwright.tools.types.evidence import Evidence, Rank
from kernelwright.tools.types.profile import HostCounters

PERF = "perf_event_open"
KERNEL = "the kernel's counts"
LINE_BYTES = 64
# Intel's and AMD's optimisation manuals: walking the page tables takes from ten to some tens of
# cycles when they lie in a cache; a mispredicted branch takes 10 to 20.
_WALK_CYCLES, _MISPREDICTION_CYCLES = 20, 15

_COUNTED = (
    "cycles", "instructions", "branches", "branch_misses", "llc_loads", "llc_load_misses",
    "cache_misses", "tlb_loads", "tlb_load_misses", "l1_load_misses", "frontend_cycles",
    "backend_cycles",
)  # fmt: skip
_RATIOS = (
    ("instructions_per_cycle", "instructions", "cycles"),
    ("branch_miss_rate", "branch_misses", "branches"),
    ("llc_miss_rate", "llc_load_misses", "llc_loads"),
    ("tlb_miss_rate", "tlb_load_misses", "tlb_loads"),
    ("frontend_share", "frontend_cycles", "cycles"),
    ("backend_share", "backend_cycles", "cycles"),
)
_COSTS = (
    ("tlb_share", "tlb_load_misses", _WALK_CYCLES),
    ("misprediction_share", "branch_misses", _MISPREDICTION_CYCLES),
)


def host_evidence(host: HostCounters) -> Iterator[Evidence]:
    """Every reading of the call, what was counted first."""
    for field in _COUNTED:
        if (value := _of(host, field)) is not None:
            source = f"{PERF} {NAMES[field]}, user space, all threads"
            yield _reading(field, Rank.MEASURED, value, "a call", source)
    yield from _kernels(host)
    yield from _ratios(host)
    yield from _missed(host)


def _kernels(host: HostCounters) -> Iterator[Evidence]:
    for name, value in (
        ("page_faults", host.faults),
        ("disk_faults", host.disk_faults),
        ("waits", host.waits),
        ("preemptions", host.preemptions),
    ):
        yield _reading(name, Rank.MEASURED, value, "a call", KERNEL)
    if host.cpu_ns is not None:
        source = f"{PERF} {NAMES['cpu_ns']} / time of the call; threads that wait in a loop count"
        busy = host.cpu_ns / 1e6 / host.time_ms
        yield _reading("busy_threads", Rank.DERIVED, busy, "threads", source)
    if host.faults:
        # Both in time that threads ran: on a busy machine calls take longer, faults do not.
        ran_ms = host.cpu_ns / 1e6 if host.cpu_ns else host.time_ms
        of = "time that threads ran" if host.cpu_ns else "time of the call"
        source = f"page faults of {host.fault_us:.2g} us each, as measured here / {of}"
        if host.huge_pages:
            source += f"; transparent huge pages: {host.huge_pages}"
        share = min(1.0, host.faults * host.fault_us / 1e3 / ran_ms)
        yield _reading("fault_share", Rank.ESTIMATED, share, "", source)


def _ratios(host: HostCounters) -> Iterator[Evidence]:
    for name, over, under in _RATIOS:
        top, bottom = _of(host, over), _of(host, under)
        if top is not None and bottom:
            source = f"{PERF} {NAMES[over]} / {NAMES[under]}"
            yield _reading(name, Rank.DERIVED, top / bottom, "", source)
    for name, field, cycles in _COSTS:
        count = _of(host, field)
        if count is not None and host.cycles:
            source = f"{NAMES[field]} of about {cycles} cycles each / cycles"
            share = min(1.0, count * cycles / host.cycles)
            yield _reading(name, Rank.ESTIMATED, share, "", source)


def _missed(host: HostCounters) -> Iterator[Evidence]:
    """Bytes that had to come from memory, as far as loads waited for them."""
    field = "llc_load_misses" if host.llc_load_misses is not None else "cache_misses"
    count = _of(host, field)
    if count is None:
        return
    source = f"{NAMES[field]} of {LINE_BYTES} bytes; what was fetched ahead is not among them"
    missed = count * LINE_BYTES
    yield _reading("missed_bytes", Rank.DERIVED, missed, "bytes", source)
    rate = missed / (host.time_ms / 1e3) / 1e9
    yield _reading("missed_bandwidth", Rank.DERIVED, rate, "GB/s", f"{source}; / time of the call")


def _of(host: HostCounters, field: str) -> float | None:
    value: float | None = getattr(host, field)
    return value


def _reading(name: str, rank: Rank, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=rank, value=value, unit=unit, source=source)
