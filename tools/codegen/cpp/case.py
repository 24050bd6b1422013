"""How a loop lies in memory, as far as choosing a strategy needs to know.

One node on one CPU: what its families decide by, and the tunables that they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cpp.frame import Frame
from kernelwright.tools.codegen.cpp.sweep import Knobs
from kernelwright.tools.codegen.ir import Access, Axis, Emitted, Loop
from kernelwright.tools.codegen.ir.kernel_family import NodeCase

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


_CHUNKS = (2048, 8192)
# Below this many positions a parallel region costs more than it gains, and so does tuning.
_SMALL = 1 << 14


@dataclass(frozen=True)
class Case(NodeCase):
    """A node, and the limits of the CPU it is for; all that is said of rows is said of a loop."""

    @property
    def cores(self) -> int:
        """Cores of the CPU."""
        return self.hardware.cores or 1

    @cached_property
    def is_small(self) -> bool:
        """Whether there is too little to do for several threads."""
        return self.loop.rows * max(1, self.loop.columns) < _SMALL

    @cached_property
    def walks(self) -> float:
        """How often a row is read from memory."""
        return walks_from_memory(self.loop, self.hardware)

    @cached_property
    def contiguous(self) -> bool:
        """Whether most elements lie along rows."""
        return contiguous_inside(self.loop)

    @cached_property
    def scattered(self) -> bool:
        """Whether rows are read along one axis and stored along another."""
        return self.contiguous and not self.is_small and stored_across(self.loop)

    def knobs(self, frame: Frame, size: int, *, segments: bool = False) -> Knobs:
        """The tunables of a loop whose rows have `size` positions; segments are parts already."""
        lanes = [width for width in (32, 16) if width <= size] or [8 if size >= 8 else 1]
        limit = min(_CHUNKS)
        chunks = [chunk for chunk in _CHUNKS if chunk < size]
        if self.is_small:
            lanes, chunks = lanes[:1], chunks[:1]
        return Knobs(
            lanes=frame.tune("LANES", lanes),
            chunk=frame.tune("CHUNK", chunks) if size > limit else str(limit),
            chunk_limit=limit,
            parts="" if segments else self.parts(frame),
            stream=self._streaming(frame),
        )

    def parts(self, frame: Frame) -> str:
        """Threads take pieces as they come free: another process on a core then costs little.

        As many pieces as cores keep each thread in one stretch of memory instead.
        """
        counts = (64, self.cores)
        return frame.tune("PARTS", counts[:1] if self.is_small else counts)

    def _streaming(self, frame: Frame) -> str:
        """The tunable for stores past the cache, where results are large; "" elsewhere."""
        written = written_bytes(frame.loop)
        if written < 1 << 20:
            return ""
        past = written > self.hardware.cache_mib * (1 << 20)
        return frame.tune("STREAM", (1, 0) if past else (0, 1))


def emitted(frame: Frame, source: str) -> Emitted:
    """A kernel and the plan line that launches it."""
    comma = "," if len(frame.arguments) == 1 else ""
    launch = f'launch("{frame.function}", args=({", ".join(frame.arguments)}{comma}))'
    return Emitted(source=source, plan=(launch,))
