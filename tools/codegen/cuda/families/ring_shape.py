"""How a ring of bulk copies fits a loop on a device: what can be copied, who shares a row.

A group of blocks shares a row; each keeps its share in shared memory, as far as it fits beside
the slots that stay free for copies under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, gcd, prod

from kernelwright.tools.codegen.cuda.families.row_tunables import kept_bytes
from kernelwright.tools.codegen.cuda.families.waves import reduces_then_writes
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.schedule import Kept, struct_bytes

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
UNROLLS = (4, 2)
# One slot in this many, and one more, stays free of the row for copies under way.
AHEAD_ONE_IN = 6
# Where a row does not fit, one slot in this many, and one more, is for what does not stay.
STREAM_ONE_IN = 4
# What the L2 answers still crosses the chip: its price beside a read of memory.
_CACHE_PRICE = 0.57
# Of the cache, what a second read meets while everything else streams through; and the cache's
# speed over memory's, for what rows share.
_CACHE_FOUND = 0.25
_CACHE_SPEED = 1.4
# Fitted, with the two above, to 19 settings of groups on one H200 (softmax, group, instance and
# batch norm), within 6 % of each; what was counted of two of them decides how much the cache finds.
# From a block's last tile to the group's answer, a part of it for each block of the group; then
# reducing and writing a KiB of the row, where tiles are whole and where their ends must be found.
_MEETING_US = {True: 1.5, False: 2.3}
_MEETING_US_A_BLOCK = 0.018
_US_A_KIB = {True: 0.075, False: 0.09}
# What is left of a meeting that the next row's reduction covers. A lag was the best nowhere.
_LAGGED_US = 2.2
# Clusters are placed within a processing cluster of the device; the smallest have so many
# multiprocessors, so that more clusters than fit there would wait for the others to end.
_NEIGHBOURS = 16


@dataclass(frozen=True)
class Fit:
    """One way to share rows, and what to expect.

    `group` blocks share a row and `blocks` a multiprocessor; tiles have `unroll` vectors a thread;
    with `lag` a row is written after the next one is reduced. A row is read `reads` times from
    memory and `cached` times out of the L2; `filled` is the share of bandwidth that is in use.
    """

    group: int
    blocks: int
    unroll: int
    lag: bool
    reads: float
    cached: float
    filled: float

    @property
    def cost(self) -> float:
        """Traffic over the share of bandwidth."""
        return (1 + self.reads) / self.share

    @property
    def share(self) -> float:
        """The share of bandwidth that is in use, less what the cache's answers take of it."""
        moved = 1 + self.reads
        return self.filled * moved / (moved + _CACHE_PRICE * self.cached)


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

    def _place(self, one: Kept) -> AxisPlace:
        return self.case.nest.places[one.stmt.name]

    def _aligned(self, one: Kept) -> bool:
        """Whether every run starts and ends at a multiple of 16 bytes."""
        place, nest = self._place(one), self.case.nest
        if place.gathers or place.inner[-1:] != (1,) or self.run * one.bytes_each % BULK_BYTES:
            return False
        # Where runs begin; how lines follow each other inside of one does not matter.
        begins = [n for n in range(len(nest.walked)) if prod(nest.walked[n + 1 :]) >= self.run]
        steps = [step for step in (*place.outer, *(place.inner[n] for n in begins)) if step]
        in_step = gcd(place.offset, *steps) * one.bytes_each % BULK_BYTES == 0
        long = self.run == nest.columns or self.run * one.bytes_each >= _FEWEST_RUN_BYTES
        return in_step and long

    def groups_text(self) -> str:
        """How many groups run at once, over tunables in braces."""
        case = self.case
        if not self.clusters:
            return f"{case.multiprocessors} * {{BLOCKS}} // {{GROUP}}"
        places = max(1, case.multiprocessors // _NEIGHBOURS)
        near = min(_NEIGHBOURS, case.multiprocessors)
        return f"max(1, {places} * ({near} * {{BLOCKS}} // {{GROUP}}))"

    def _fits(self) -> Iterator[Fit]:
        for blocks in (2, 3, 4, 1):
            for unroll in UNROLLS:
                slots = self._slots(blocks, unroll)
                if slots >= 2 and (blocks == 2 or blocks == 1 or unroll == UNROLLS[-1]):
                    for group in self._groups(blocks):
                        yield self._fit(group, blocks, unroll, lag=False)
                        if not self.clusters and slots > 2 * self._tiles(group, unroll):
                            yield self._fit(group, blocks, unroll, lag=True)

    @cached_property
    def _shared_bytes(self) -> int:
        """Bytes an element that rows share and read from the cache each."""
        case = self.case
        if not case.shares_columns:
            return 0
        places = (case.nest.places[s.name] for s in case.loop.body if s.op == "load")
        return sum(p.dtype.itemsize_bytes for p in places if any(p.inner) and not any(p.outer))

    def _groups(self, blocks: int) -> list[int]:
        """Numbers of blocks a row, down to shares that are not worth a block."""
        most = max(1, self.case.nest.columns * self.bytes_each // _SMALLEST_SHARE_BYTES)
        if self.clusters:
            return [n for n in (*self.case.cluster_sizes, 1) if n <= most]
        resident = self.case.multiprocessors * blocks
        return [n for n in range(2, resident + 1) if n <= most and resident % n <= resident // 32]

    def _tile(self, unroll: int) -> int:
        """Elements of a tile."""
        return THREADS * unroll * self.case.along_rows.widths[0]

    def _chunk(self, group: int) -> int:
        """Elements of a block's share of a row."""
        return ceil(self.case.nest.columns / (group * ALIGN)) * ALIGN

    def _tiles(self, group: int, unroll: int) -> int:
        return ceil(self._chunk(group) / self._tile(unroll))

    def _slots(self, blocks: int, unroll: int) -> int:
        room = self.shared_bytes // blocks - self.reserved_bytes
        return min(MOST_SLOTS, room // (self._tile(unroll) * self.bytes_each))

    def _running(self, group: int, blocks: int) -> int:
        """Groups that run at once."""
        case = self.case
        running = case.multiprocessors * blocks // group
        if self.clusters:
            near = min(_NEIGHBOURS, case.multiprocessors)
            running = max(1, case.multiprocessors // _NEIGHBOURS) * (near * blocks // group)
        return max(1, min(case.nest.rows, running))

    def _fit(self, group: int, blocks: int, unroll: int, *, lag: bool) -> Fit:
        case, rows = self.case, self.case.nest.rows
        groups = self._running(group, blocks)
        share = case.nest.columns * self.bytes_each / group
        slots, tiles = self._slots(blocks, unroll), self._tiles(group, unroll)
        kept = _kept(tiles, slots)
        again = 1 - kept / tiles
        # What is read again meets what the cache still has of it.
        wanted = again * share * group * groups
        found = min(1.0, _CACHE_FOUND * case.cache_bytes / wanted) if again else 1.0
        used = groups * group / (case.multiprocessors * blocks)
        used *= rows / (-(-rows // groups) * groups)
        reads = 1 + again * (1 - found)
        # What memory would take for a round of rows, and what a block takes for its share.
        memory_us = share * (1 + reads) * blocks * case.multiprocessors
        memory_us /= case.hardware.bandwidth_gb_s * 1e3
        shared_us = memory_us * self._shared_bytes / (self.bytes_each * (1 + reads) * _CACHE_SPEED)
        meeting_us = _MEETING_US[self.clusters] + _MEETING_US_A_BLOCK * group
        exact = self._chunk(group) % self._tile(unroll) == 0
        busy_us = share / 1024 * _US_A_KIB[exact] * max(1.0, blocks / 2)
        # What does not stay of the next row is reduced while the group meets.
        exposed_us = _LAGGED_US if lag else max(_LAGGED_US, meeting_us - again * busy_us / 2)
        block_us = exposed_us + busy_us
        if lag:
            # The meeting is over by then, unless a whole round is shorter.
            block_us = max(block_us, meeting_us)
        return Fit(
            group=group,
            blocks=blocks,
            unroll=unroll,
            lag=lag,
            reads=reads,
            cached=again * found,
            # While one group meets, only the others move anything.
            filled=used * memory_us / (max(memory_us + shared_us, block_us) + exposed_us / groups),
        )


def _kept(tiles: int, slots: int) -> int:
    """How many of a row's tiles stay on chip, as the kernel counts them."""
    if tiles + slots // AHEAD_ONE_IN + 1 <= slots:
        return tiles
    return slots - (2 if slots < 4 else slots // STREAM_ONE_IN + 1)


def _run(place: AxisPlace, sizes: tuple[int, ...]) -> int:
    """How many neighbours along the walked axes follow each other in memory."""
    run = 1
    for size, step in zip(reversed(sizes), reversed(place.inner), strict=True):
        if step != run:
            break
        run *= size
    return run
