"""How a loop lies in memory, as far as choosing a strategy needs to know."""

from __future__ import annotations

from math import prod

from agents.playbook.ir import Access, Loop
from profiles.load import Hardware

_FAR = 1 << 62


def written_bytes(loop: Loop) -> int:
    """Bytes of everything stored."""
    return sum(_touched(loop, store.access) for store in loop.stores)


def contiguous_inside(loop: Loop) -> bool:
    """Whether most of the loop's elements lie along inner axes."""
    votes = 0
    for access in accesses(loop):
        inside = min((abs(access.step(a.name)) or _FAR for a in loop.inner), default=_FAR)
        outside = min((abs(access.step(a.name)) or _FAR for a in loop.outer), default=_FAR)
        if inside != outside:
            touched = _touched(loop, access)
            votes += touched if inside < outside else -touched
    return votes >= 0


def walks_from_memory(loop: Loop, hardware: Hardware) -> float:
    """How often a row is read from memory: once where it fits a core's own cache."""
    row = sum(
        access.dtype.itemsize_bytes * prod(a.size for a in loop.inner if access.step(a.name))
        for access in accesses(loop)
    )
    if row <= (hardware.l2_kib_per_core or 512) * 1024:
        return 1.0
    return 1.0 + max(loop.passes().values(), default=0)


def accesses(loop: Loop) -> tuple[Access, ...]:
    """Everything that the loop reads or writes."""
    loads = [stmt.access for stmt in loop.body if stmt.access is not None]
    return (*loads, *(store.access for store in loop.stores))


def _touched(loop: Loop, access: Access) -> int:
    axes = (*loop.outer, *loop.inner)
    return access.dtype.itemsize_bytes * prod(a.size for a in axes if access.step(a.name))
