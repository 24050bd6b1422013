"""How a loop lies in memory, as far as choosing a strategy needs to know."""

from __future__ import annotations

from math import prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Access, Axis, Loop

_FAR = 1 << 62


def written_bytes(loop: Loop) -> int:
    """Bytes of everything stored."""
    return sum(_touched(loop, store.access) for store in loop.stores)


def contiguous_inside(loop: Loop) -> bool:
    """Whether most of the loop's elements lie along inner axes."""
    votes = 0
    for access in accesses(loop):
        inside, outside = _nearest(access, loop.inner), _nearest(access, loop.outer)
        if inside != outside:
            touched = _touched(loop, access)
            votes += touched if inside < outside else -touched
    return votes >= 0


def stored_across(loop: Loop) -> bool:
    """Whether most of what is stored along rows lies beside what the next row stores."""
    votes = 0
    for access in (store.access for store in loop.stores):
        inside, outside = _nearest(access, loop.inner), _nearest(access, loop.outer)
        if inside != _FAR:
            votes += _touched(loop, access) * (1 if outside < inside else -1)
    return votes > 0


def _nearest(access: Access, axes: tuple[Axis, ...]) -> int:
    """The smallest step along some axes; far where the access stays."""
    return min((abs(access.step(axis.name)) or _FAR for axis in axes), default=_FAR)


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
