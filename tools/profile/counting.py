"""Counts events in all threads of this process, between a start and a stop.

    with counting(PASSES[0]) as counter:
        counter.start()
        work()
        seen = counter.stop()      # {"cycles": 1.2e6, ...}; what was refused is not among

Threads that exist are each given counters, and those they start inherit them. Where a processor
had to take turns between events, a count is scaled up by the time that it was left out.
Not covered: code in the kernel, and threads that another thread of the process starts meanwhile
without having been there.
"""

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from kernelwright.tools.profile.events import Event

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
