"""One node on one device: everything that strategies decide by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.tools.codegen.cuda.printing.nest import Nest, nest_of
from kernelwright.tools.codegen.cuda.printing.schedule import (
    Kept,
    Schedule,
    Scheduler,
    kept_values,
    schedule_of,
)
from kernelwright.tools.codegen.cuda.printing.stencil import Stencil, stencil_of
from kernelwright.tools.codegen.cuda.printing.vectors import (
    Vectors,
    crossing_of,
    peeled_of,
    vectors_of,
)
from kernelwright.tools.codegen.ir.contraction import Contraction, contraction_of
from kernelwright.tools.codegen.ir.kernel_family import NodeCase

KIB = 1024
# Registers (4-byte words) that a thread can spend on a row before the compiler spills, the most
# that every architecture gives a block, and what a thread needs besides the row.
ROW_WORDS = 96
REGISTERS = 65536
OTHER_WORDS = 24
# The most of a row that a block can hold: 512 threads at their limit.
BLOCK_WORDS = 512 * ROW_WORDS
# Values that a thread reads before it uses them: with 256 kernels of windows spilled (sm_90).
WORDS_UNDER_WAY = 128
# In small groups of lanes, fewer registers keep more rows in flight.
LANE_WORDS = 64
# What a block keeps for its own exchanges out of its shared memory.
RESERVED_BYTES = 2 * KIB


@dataclass(frozen=True)
class Case(NodeCase):
    """A node, analysed once, and the limits of the device it is for.

    All that is said of rows, columns and passes is said of a loop.
    """

    @cached_property
    def nest(self) -> Nest:
        """The loop with its axes merged and ordered."""
        return nest_of(self.loop)

    @cached_property
    def contraction(self) -> Contraction | None:
        """The product of matrices (or of a matrix and a vector) that the loop is, if it is one."""
        return contraction_of(self.loop)

    @cached_property
    def stencil(self) -> Stencil:
        """What neighbours read of the same buffers; the last three axes stay unmerged for it."""
        return stencil_of(nest_of(self.loop, apart=3))

    @cached_property
    def schedule(self) -> Schedule:
        """Its passes (meaningless for scans)."""
        return schedule_of(self.nest)

    @cached_property
    def schedule_in_order(self) -> Schedule:
        """Its passes where one thread walks a row in order; scans included."""
        return Scheduler(self.nest, in_order=True).schedule()

    @cached_property
    def along_rows(self) -> Vectors:
        """Vectors along the last walked axis, or beyond its ends where those are wider."""
        plain = vectors_of(self.nest, "walked")
        return plain if self.has_scan else crossing_of(self.nest, plain) or plain

    @cached_property
    def peeled_rows(self) -> Vectors | None:
        """Wider vectors along the last walked axis, where each row's ends are peeled off."""
        return peeled_of(self.nest, self.along_rows)

    @cached_property
    def along_columns(self) -> Vectors:
        """Vectors along the last kept axis."""
        return vectors_of(self.nest, "kept")

    @property
    def has_scan(self) -> bool:
        """Whether something runs along the walked axes."""
        return any(stmt.op == "scan" for stmt in self.loop.body)

    @cached_property
    def contiguous_rows(self) -> bool:
        """Whether most bytes are contiguous along the walked axes rather than the kept ones."""
        walked = kept = 0
        for place in self.nest.streams():
            moved = self.nest.moved_bytes(place)
            walked += moved if place.inner and abs(place.inner[-1]) == 1 else 0
            kept += moved if place.outer and abs(place.outer[-1]) == 1 else 0
        return walked >= kept

    def keeps(self, vectors: Vectors, *, loads_only: bool = False) -> tuple[Kept, ...]:
        """What the first pass keeps for the others."""
        return kept_values(self.nest, self.schedule, vectors, loads_only=loads_only)

    def unrolls(self, vectors: Vectors) -> list[int]:
        """Vectors of a row that a thread reads at once, the likeliest number first.

        Where windows read at many places, four at once would not stay in registers.
        """
        at_element = self.nest.levels
        loads = sum(s.op == "load" and at_element[s.name] == "element" for s in self.loop.body)
        fits = [n for n in (4, 2) if n * loads * vectors.widths[0] <= WORDS_UNDER_WAY]
        return first(max(fits, default=1), [4, 2, 8, 1])

    @property
    def row_words(self) -> int:
        """Registers that hold one position of a row: what is kept, else what is read at once."""
        kept = self.keeps(self.along_rows)
        return max(1, sum((one.bytes_each + 3) // 4 for one in kept))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of memory that one row moves in one pass over it."""
        streams = [place for place in self.nest.streams() if any(place.inner)]
        return self.nest.columns * sum(place.dtype.itemsize_bytes for place in streams)

    @cached_property
    def read_bytes(self) -> int:
        """Bytes of memory that one pass reads of one row."""
        read: dict[str, int] = {}
        for place in (self.nest.places[s.name] for s in self.loop.body if s.op == "load"):
            axes = zip(self.nest.walked, place.inner, strict=True)
            size = prod(size for size, step in axes if step) if any(place.inner) else 0
            here = size * place.dtype.itemsize_bytes
            read[place.buffer] = max(here, read.get(place.buffer, 0))
        return sum(read.values())

    @cached_property
    def shares_columns(self) -> bool:
        """Whether rows share something, like a weight, too large to stay cached for a row."""
        nest = self.nest
        shared = [p for p in nest.streams() if any(p.inner) and not any(p.outer) and not p.gathers]
        size = sum(map(nest.moved_bytes, shared))
        long = size > 64 * KIB and size + self.row_bytes > self.cache_bytes / 4
        return nest.rows > 1 and long

    @property
    def multiprocessors(self) -> int:
        """Multiprocessors of the device."""
        return self.hardware.sm_count or 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory that a row may take in one block."""
        return (self.hardware.shared_kib_per_block or 48) * KIB - RESERVED_BYTES

    @property
    def cluster_sizes(self) -> tuple[int, ...]:
        """Cluster sizes of the device beyond one; none where clusters do not exist."""
        most = self.hardware.cluster_size or 1
        return tuple(size for size in (8, 16, 4, 2) if size <= most)

    @property
    def cache_bytes(self) -> float:
        """The share of the last-level cache that a second read can count on."""
        return self.hardware.cache_mib * KIB * KIB / 2


def powers(low: int, high: int) -> list[int]:
    """Powers of two from `low` to `high`, both included."""
    found, value = [], 1
    while value <= high:
        if value >= low:
            found.append(value)
        value *= 2
    return found


def first(best: int, values: list[int]) -> list[int]:
    """The values with the one nearest to `best` first."""
    chosen = min(values, key=lambda value: (abs(value - best), value))
    return [chosen, *(value for value in values if value != chosen)]
