"""A process and everything below it, as this machine counts them, and the memory that they hold.

Behind a wall with processes of its own nothing leaves the tree: an orphan comes to its first
process. Without one the launcher collects orphans.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def machine_bytes() -> int:
    """Memory that this machine, or the control group around us, has at all."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP.read_text(encoding="utf-8").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def resident_bytes(pid: int) -> int:
    """What the process holds right now; 0 when it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> tuple[int, ...]:
    """The process and its descendants; empty when it is gone."""
    if not Path(f"/proc/{pid}").exists():
        return ()
    found, waiting = [pid], [pid]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return tuple(found)


def held_bytes(pids: Iterable[int]) -> int:
    """What the processes hold right now, what they share counted once."""
    alone = [_resident(pid) for pid in pids]
    total = sum(alone)
    # Forks share most of their memory: the dear, exact count is taken where it matters.
    if len([size for size in alone if size > total // 4]) > 1:
        return sum(_proportional(pid) or size for pid, size in zip(pids, alone, strict=True))
    return total


async def gone(pids: Iterable[int], within_s: float) -> bool:
    """Wait until none of the processes runs any more."""
    deadline = time.monotonic() + within_s
    left = [pid for pid in pids if _runs(pid)]
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
        left = [pid for pid in left if _runs(pid)]
    return not left


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="utf-8") as listed:
                found += [int(word) for word in listed.read().split()]
    except OSError:
        pass  # it ended while it was read
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Its share of what it holds; 0 when that is not told."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line[:4] == "Pss:"), 0)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"
