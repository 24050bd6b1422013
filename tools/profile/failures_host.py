"""Why the processors count nothing here, read from the kernel's error, and the cheapest remedy."""

import errno
import os
from pathlib import Path

from kernelwright.tools.types.profile import Missing

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
