"""What processors and Linux counted in this process's own threads, and why where they could not.

    with counting(PASSES[0]) as counter:
        counter.start()
        work()
        seen = counter.stop()      # {"cycles": 1.2e6, ...}; what was refused is not among

Hardware events are a short list in passes of few, so that no processor has to take turns. Numbers
and names are as in Linux's <linux/perf_event.h>, which never change. An event that a processor
lacks leaves its field None; what the generic ones count exactly differs between makers. Where the
processors count nothing, the kernel's error says why, and the cheapest remedy is named.

Threads that exist are each given counters, and those they start inherit them. Where a processor
had to take turns between events all the same, a count is scaled up by the time that it was left
out. Not covered: code in the kernel, and threads that another thread of the process starts
meanwhile without having been there.

Linux itself counts page faults and lost turns, without any right. What a page fault costs here is
measured by touching fresh memory; whether the kernel was told to hand out huge pages is told too.

What was counted in a call becomes readings by name; none is of a single kernel. Shares of time that
follow from a count and a cost are estimates: processors overlap their waiting.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kernelwright.tools.types.profile import Evidence, HostCounters, Missing, Rank

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


_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_PROCESSORS = Path("/proc/cpuinfo")
# Above this, the kernel refuses even code of one's own; distributions use 3 and 4.
_OWN_CODE = 2
_WITHOUT = "the search works without"


def not_counted(number: int) -> Missing:
    """The missing step for the error with which `perf_event_open` refused to count cycles."""
    if number in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
        return _missing(
            *(_VIRTUAL if _virtual() else ("this processor shows no hardware counters", _WITHOUT))
        )
    if number in (errno.EACCES, errno.EPERM):
        level = _paranoid()
        if level is not None and level > _OWN_CODE:
            why = f"the kernel lets nobody count (perf_event_paranoid is {level})"
            return _missing(why, f"sysctl kernel.perf_event_paranoid={_OWN_CODE}")
        why = "perf_event_open is forbidden here, as in most containers"
        return _missing(why, "start the container with --cap-add PERFMON")
    if number == errno.ENOSYS:
        return _missing("this kernel has no perf_event_open", _WITHOUT)
    if number == errno.EMFILE:
        return _missing("too many threads for the limit of open files", "raise it: ulimit -n 8192")
    return _missing(f"perf_event_open failed: {os.strerror(number)}", _WITHOUT)


_VIRTUAL = (
    "this virtual machine shows no hardware counters (it has no PMU)",
    "give it its host's, or search on the host; page faults and threads are counted all the same",
)


def _missing(why: str, remedy: str) -> Missing:
    return Missing(step="counters", why=why, remedy=remedy)


def _virtual() -> bool:
    """Whether the processor says that it is not a real one."""
    try:
        flags = _PROCESSORS.read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0]
    except OSError:
        return False
    return "hypervisor" in flags.split()


def _paranoid() -> int | None:
    try:
        return int(_PARANOID.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_TOUCHED_BYTES = 8 << 20
_TRIES = 5


class Usage(NamedTuple):
    """Counts since the process began, all its threads together.

    `faults` were served from memory, `disk_faults` from a disk; `waits` are times that a thread
    gave its place up, `preemptions` that it was taken away.
    """

    faults: int
    disk_faults: int
    waits: int
    preemptions: int


def usage() -> Usage:
    """The counts of this moment."""
    seen = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(seen.ru_minflt, seen.ru_majflt, seen.ru_nvcsw, seen.ru_nivcsw)


def fault_us() -> float:
    """What the first touch of a small page costs more than the second, zeroing included.

    Of this thread's own time, so that it does not matter who else wants the processor; the
    cheapest of a few tries.
    """
    return min(_first_touch_us() for _ in range(_TRIES))


def huge_pages() -> str:
    """`always`, `madvise` or `never`; "" where the kernel does not say."""
    try:
        told = _HUGE_PAGES.read_text(encoding="utf-8")
    except OSError:
        return ""
    return told.partition("[")[2].partition("]")[0]


def _first_touch_us() -> float:
    with mmap.mmap(-1, _TOUCHED_BYTES) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        window = (ctypes.c_char * _TOUCHED_BYTES).from_buffer(memory)
        address = ctypes.addressof(window)
        took = [_fill_ns(address) for _ in range(2)]
        del window  # the map cannot be closed while anybody looks into it
    return max(0.0, took[0] - took[1]) / 1e3 / (_TOUCHED_BYTES // mmap.PAGESIZE)


def _fill_ns(address: int) -> int:
    start = time.thread_time_ns()
    ctypes.memset(address, 1, _TOUCHED_BYTES)
    return time.thread_time_ns() - start


_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ENABLE, _DISABLE = 0x2400, 0x2401
# The structure's first version, which every kernel takes: type, size, event, period, sample type,
# read format, flags, and three fields of break points.
_ATTRIBUTES = struct.Struct("IIQQQQQIIQ")
_TIMES = 1 | 2  # with the times that it was wanted and that it ran
_OFF, _INHERIT, _USER_ONLY, _NO_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 8
_READING = struct.Struct("QQQ")


class Counter:
    """Counters of some events, one a thread; made by `counting`.

    `refused` holds, by field, the number of the error with which the kernel refused an event.
    """

    def __init__(self, opened: Sequence[tuple[Event, int]], refused: Mapping[str, int]) -> None:
        self._opened = opened
        self._before: list[tuple[int, int, int]] = []
        self.refused = refused

    def start(self) -> None:
        """Count from now on."""
        self._before = [_read(descriptor) for _, descriptor in self._opened]
        for _, descriptor in self._opened:
            fcntl.ioctl(descriptor, _ENABLE, 0)

    def stop(self) -> dict[str, float]:
        """What was counted since the start, by field, all threads together."""
        for _, descriptor in self._opened:
            fcntl.ioctl(descriptor, _DISABLE, 0)
        seen: dict[str, float] = {}
        lost: set[str] = set()
        for (event, descriptor), before in zip(self._opened, self._before, strict=True):
            now = _read(descriptor)
            counted, wanted, ran = (new - old for new, old in zip(now, before, strict=True))
            if wanted and not ran:
                lost.add(event.field)  # never its turn: no count, not a count of nothing
            scaled = counted * wanted / ran if ran else 0.0
            seen[event.field] = seen.get(event.field, 0.0) + scaled
        return {field: value for field, value in seen.items() if field not in lost}


@contextmanager
def counting(events: Sequence[Event]) -> Iterator[Counter]:
    """Counters for the threads that there are now; closed in the end.

    Raises:
        OSError: the kernel has no such call here, or there are too many threads.
    """
    opened: list[tuple[Event, int]] = []
    refused: dict[str, int] = {}
    with ExitStack() as closing:
        for thread in sorted(int(name) for name in os.listdir("/proc/self/task")):
            for event in events:
                if event.field in refused:
                    continue
                try:
                    descriptor = _open(event, thread)
                except OSError as error:
                    if error.errno == errno.ESRCH:
                        break  # that thread has ended
                    if error.errno in (errno.EMFILE, errno.ENOSYS):
                        raise
                    refused[event.field] = error.errno or errno.EIO
                else:
                    closing.callback(os.close, descriptor)
                    opened.append((event, descriptor))
        yield Counter(opened, refused)


def _open(event: Event, thread: int) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _OFF | _INHERIT | _USER_ONLY | _NO_HYPERVISOR
    size = _ATTRIBUTES.size
    attributes = _ATTRIBUTES.pack(event.type, size, event.config, 0, 0, _TIMES, flags, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.syscall(
        ctypes.c_long(number),
        ctypes.create_string_buffer(attributes, size),
        ctypes.c_int(thread),
        ctypes.c_int(-1),  # on whichever processor it runs
        ctypes.c_int(-1),  # no group
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if descriptor < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
    return int(descriptor)


def _read(descriptor: int) -> tuple[int, int, int]:
    counted, wanted, ran = _READING.unpack(os.read(descriptor, _READING.size))
    return counted, wanted, ran


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
