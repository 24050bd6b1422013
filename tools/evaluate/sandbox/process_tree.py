"""A process and everything below it, as this machine counts them: their memory, and what they do.

Behind a wall with processes of its own nothing leaves the tree: an orphan comes to its first
process. Without one the launcher collects orphans.
"""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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


_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_TELL_EVERY_S, _LOOK_EVERY_S = 5.0, 1.0
# Whoever only looks now and then whether something has come takes less than this.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Doing:
    """Processor seconds, those of ended children too, and bytes that processes read and wrote."""

    at_s: float
    processor_s: float
    moved_bytes: int


def doing(pids: Iterable[int]) -> Doing:
    """What the processes did up to now."""
    every = [(_processor_s(pid), _moved_bytes(pid)) for pid in pids]
    spent, moved = sum(item[0] for item in every), sum(item[1] for item in every)
    return Doing(time.monotonic(), spent, moved)


async def until_still(
    processes: Callable[[], Iterable[int]], still_s: float, tell: Callable[[float, bool], None]
) -> None:
    """Wait until they neither computed nor read or wrote for so long.

    Args:
        processes: The processes that there are now.
        still_s: How long.
        tell: Told every few seconds how many have passed, and whether they compute just now.
    """
    seen = deque([doing(processes())])
    began_s, told_s = seen[0].at_s, 0.0
    while True:
        await asyncio.sleep(min(_LOOK_EVERY_S, still_s / 4))
        now = doing(processes())
        seen.append(now)
        passed_s = now.at_s - began_s
        if passed_s - told_s >= _TELL_EVERY_S:
            told_s = passed_s
            before = next(item for item in seen if now.at_s - item.at_s <= _TELL_EVERY_S)
            tell(passed_s, not _still(before if before is not now else seen[-2], now))
        while len(seen) > 1 and now.at_s - seen[1].at_s >= still_s:
            seen.popleft()
        if now.at_s - seen[0].at_s >= still_s and _still(seen[0], now):
            return


def _still(before: Doing, now: Doing) -> bool:
    spent_s = abs(now.processor_s - before.processor_s)
    least_s = _LEAST_SHARE * (now.at_s - before.at_s)
    return spent_s <= least_s and now.moved_bytes == before.moved_bytes


def _processor_s(pid: int) -> float:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[11:15])) / _TICKS_A_SECOND


def _moved_bytes(pid: int) -> int:
    """0 for a process that does not let itself be looked at, as our launcher does."""
    with contextlib.suppress(OSError, ValueError):
        told = Path(f"/proc/{pid}/io").read_text(encoding="utf-8").split()
        named = dict(zip(told[::2], map(int, told[1::2]), strict=False))
        return sum(named.get(f"{name}:", 0) for name in ("rchar", "wchar", "read_bytes"))
    return 0


async def gone(pids: Iterable[int], within_s: float) -> bool:
    """Wait until none of the processes runs any more."""
    deadline = time.monotonic() + within_s
    left = [pid for pid in pids if runs(pid)]
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
        left = [pid for pid in left if runs(pid)]
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


def runs(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    return _state(pid) not in "ZX"


def moves(pid: int) -> bool:
    """Whether a process is there that neither ended nor stands still until it is told to go on."""
    return _state(pid) not in "TtZX"


def _state(pid: int) -> str:
    """The kernel's letter for it; X, that of the dead, for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"
