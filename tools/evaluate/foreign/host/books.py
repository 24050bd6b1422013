"""What the kernel has on record about a process and everything that it started.

Read from outside, so that walls and lies make no difference. Not covered: the time of processes
that came and went between two readings.
"""

import os
from pathlib import Path

from tools.evaluate.process.memory import resident_bytes
from tools.nouns.value import Value

_PROC = Path("/proc")


class Books(Value):
    """One reading. `names` are those of the processes, in the order of their numbers."""

    cpu_ms: float
    threads: int
    processes: int
    held_bytes: int
    names: tuple[str, ...] = ()


def family(pid: int) -> list[int]:
    """The process and its descendants; empty when it is gone."""
    parents = {child: parent for child in _numbers() if (parent := _parent(child)) is not None}
    members = [pid] if pid in parents else []
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def books(pid: int) -> Books:
    """Everything the family used and holds."""
    members = family(pid)
    tasks = {member: _tasks(member) for member in members}
    return Books(
        cpu_ms=sum(_ran_ns(m, t) for m, numbers in tasks.items() for t in numbers) / 1e6,
        threads=sum(len(numbers) for numbers in tasks.values()),
        processes=len(members),
        held_bytes=sum(resident_bytes(member) for member in members),
        names=tuple(_name(member) for member in members),
    )


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, parentheses included.
    return int(text.rpartition(")")[2].split()[1])


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
