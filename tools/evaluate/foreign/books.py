"""What the kernel has on record about a process and everything that it started.

Read from outside, so that walls and lies make no difference. Not covered: the time of processes
that came and went between two readings.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from kernelwright.tools.types.value import Value

_PROC = Path("/proc")


class Books(Value):
    """One reading. `names` are those of the processes, in the order of their numbers."""

    cpu_ms: float
    threads: int
    processes: int
    held_bytes: int
    names: tuple[str, ...] = ()


def books(members: Sequence[int], held_bytes: int) -> Books:
    """What these processes used, and how many threads they have now.

    Args:
        members: of one tree, by their numbers as this program sees them.
        held_bytes: what they hold together.
    """
    tasks = {member: _tasks(member) for member in members}
    return Books(
        cpu_ms=sum(_ran_ns(m, t) for m, numbers in tasks.items() for t in numbers) / 1e6,
        threads=sum(len(numbers) for numbers in tasks.values()),
        processes=len(members),
        held_bytes=held_bytes,
        names=tuple(_name(member) for member in members),
    )


def _tasks(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC / str(pid) / "task")]
    except OSError:
        return []


def _ran_ns(pid: int, task: int) -> int:
    """Time on a CPU in nanoseconds, which `stat` only counts in hundredths of a second."""
    try:
        text = (_PROC / str(pid) / "task" / str(task) / "schedstat").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(text.split()[0])


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
