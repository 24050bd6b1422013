"""How a ring of bulk copies fits a loop on a device: what can be copied, who shares a row.

A group of blocks shares a row; each keeps its share in shared memory, as far as it fits beside
the slots that stay free for copies under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, gcd

from agents.playbook.cuda.case import Case
from agents.playbook.cuda.keeping import kept_bytes
from agents.playbook.cuda.nest import Place
from agents.playbook.cuda.partials import struct_bytes
from agents.playbook.cuda.printing import Printer
from agents.playbook.cuda.schedule import Kept
from agents.playbook.cuda.waves import reduces_then_writes

BULK_BYTES = 16  # addresses and sizes of a bulk copy are multiples of this
# Shares of a row start at multiples of this many elements: 16 bytes or more of every type.
ALIGN = 16
MOST_SLOTS = 64
# The system's share of a block's shared memory, and the barriers of MOST_SLOTS slots.
_FIXED_BYTES = 2048
_FEWEST_RUN_BYTES = 512
_SMALLEST_SHARE_BYTES = 16 * 1024
# Of the first settings: threads and vectors a thread of a tile.
THREADS = 256
UNROLL = 4
# One slot in this many, and one more, stays free of the row for copies under way.
AHEAD_ONE_IN = 6
# What the L2 answers still crosses the chip: its price beside a read of memory.
_CACHE_PRICE = 0.2
# Two blocks of different rows on a multiprocessor take turns where one block would wait.
_ALONE = 0.97
# From a block's last tile to the group's answer, in microseconds: estimates, not measured.
_MEETING_US = {True: 1.5, False: 2.5}


@dataclass(frozen=True)
class Fit:
    """One way to share rows, and what to expect.

    `group` blocks share a row and `blocks` a multiprocessor; a row is read `reads` times from
    memory and `cached` times out of the L2; `filled` is the share of bandwidth that is in use.
    """

    group: int
    blocks: int
    reads: float
    cached: float
    filled: float

    @property
    def cost(self) -> float:
        """Traffic over the share of bandwidth."""
        return (1 + self.reads + _CACHE_PRICE * self.cached) / self.filled


@dataclass(frozen=True)
class Ring:
    """The geometry of a loop's ring; `clusters` says how its groups exchange partials."""

    case: Case
    clusters: bool

    @cached_property
    def keeps(self) -> tuple[Kept, ...]:
        """The loads that bulk copies bring."""
        return self.case.keeps(self.case.along_rows, loads_only=True)

    @property
    def bytes_each(self) -> int:
        """Bytes an element that are copied."""
        return kept_bytes(self.keeps)

    @cached_property
    def run(self) -> int:
        """Neighbouring positions of a row that lie next to each other in every copied buffer."""
        runs = [_run(self._place(one), self.case.nest.walked) for one in self.keeps]
        return min(runs, default=0)

    @cached_property
    def reserved_bytes(self) -> int:
        """Shared memory of a block that is not the ring's."""
        first = self.case.schedule.passes[0]
        members = Printer(self.case.nest, self.case.along_rows).members(first)
        # A partial for each of at most 32 warps, and a few for the group.
        return _FIXED_BYTES + 40 * struct_bytes(members)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a multiprocessor: a block's most, and the system's share of it."""
        return self.case.shared_bytes + _FIXED_BYTES + 1024

    def fits(self) -> list[Fit]:
        """Ways to share a row, the most promising first; none where bulk copies do not apply."""
        if not self._applies():
            return []
        return sorted(self._fits(), key=lambda fit: (fit.cost, fit.group))

    def _applies(self) -> bool:
        case = self.case
        if not case.cluster_sizes or not reduces_then_writes(case) or not self.keeps:
            return False
        return all(self._aligned(one) for one in self.keeps)

    def _place(self, one: Kept) -> Place:
        return self.case.nest.places[one.stmt.name]

    def _aligned(self, one: Kept) -> bool:
        """Whether every run starts and ends at a multiple of 16 bytes."""
        place, nest = self._place(one), self.case.nest
        if place.gathers or place.inner[-1:] != (1,) or self.run * one.bytes_each % BULK_BYTES:
            return False
        steps = [step for step in (*place.outer, *place.inner[:-1]) if step]
        in_step = gcd(place.offset, *steps) * one.bytes_each % BULK_BYTES == 0
        long = self.run == nest.columns or self.run * one.bytes_each >= _FEWEST_RUN_BYTES
        return in_step and long

    def _fits(self) -> Iterator[Fit]:
        for blocks in (2, 1):
            if self._slots(blocks) >= 2:
                yield from (self._fit(group, blocks) for group in self._groups(blocks))

    def _groups(self, blocks: int) -> list[int]:
        """Numbers of blocks a row, down to shares that are not worth a block."""
        most = max(1, self.case.nest.columns * self.bytes_each // _SMALLEST_SHARE_BYTES)
        if self.clusters:
            return [n for n in (*self.case.cluster_sizes, 1) if n <= most]
        resident = self.case.multiprocessors * blocks
        return [n for n in range(2, resident + 1) if n <= most and resident % n <= resident // 32]

    @property
    def _tile_bytes(self) -> int:
        return THREADS * UNROLL * self.case.along_rows.widths[0] * self.bytes_each

    def _slots(self, blocks: int) -> int:
        room = self.shared_bytes // blocks - self.reserved_bytes
        return min(MOST_SLOTS, room // self._tile_bytes)

    def _fit(self, group: int, blocks: int) -> Fit:
        case, rows = self.case, self.case.nest.rows
        resident = case.multiprocessors * blocks
        groups = max(1, min(rows, resident // group))
        share = case.nest.columns * self.bytes_each / group
        slots, tiles = self._slots(blocks), ceil(share / self._tile_bytes)
        kept = min(tiles, slots - slots // AHEAD_ONE_IN - 1)
        again = 1 - kept / tiles
        # What is read again meets what the cache still has of it.
        wanted = again * share * group * groups
        found = min(1.0, 1.25 * case.cache_bytes / wanted) if again else 1.0
        used = groups * group / resident * rows / (-(-rows // groups) * groups)
        used *= _ALONE if blocks == 1 else 1.0
        return Fit(
            group=group,
            blocks=blocks,
            reads=1 + again * (1 - found),
            cached=again * found,
            filled=used / (1 + self._exposed(share, slots - kept, blocks, groups)),
        )

    def _exposed(self, share: float, free: int, blocks: int, groups: int) -> float:
        """The time that memory idles while a group meets, over that of the row's traffic."""
        case = self.case
        bytes_per_us = case.hardware.bandwidth_gb_s * 1e3 / (case.multiprocessors * blocks)
        meeting_us = _MEETING_US[self.clusters]
        # Free slots keep copies under way; nothing is stored meanwhile.
        idle_us = max(0.0, meeting_us - free * self._tile_bytes / bytes_per_us) + meeting_us / 4
        # Blocks of different rows on a multiprocessor cover for each other.
        return idle_us / min(blocks, groups) / (2 * share / bytes_per_us)


def _run(place: Place, sizes: tuple[int, ...]) -> int:
    """How many neighbours along the walked axes follow each other in memory."""
    run = 1
    for size, step in zip(reversed(sizes), reversed(place.inner), strict=True):
        if step != run:
            break
        run *= size
    return run
