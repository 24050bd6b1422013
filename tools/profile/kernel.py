"""What Linux itself counts for a process, without any right: page faults, and lost turns.

Also what a page fault costs here, measured by touching fresh memory, and whether the kernel was
told to hand out huge pages.
"""

import ctypes
import mmap
import resource
import time
from pathlib import Path
from typing import NamedTuple

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
