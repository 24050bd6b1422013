"""The strategy that reads a row once, or nearly, by bulk copies into a ring in shared memory.

A group of blocks that meet through memory shares a row; while it reduces, meets and writes, the
copy engine fills the slots that are free with what comes next. Each block keeps its share in shared
memory, as far as it fits beside those slots. What does not fit on chip is read again last-first,
when the L2 is the likeliest to have it. `Ring` says how that fits a loop on a device: what can be
copied, and how many share a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, gcd, prod

from kernelwright.tools.codegen.cuda.families.reductions.row_tunables import kept_bytes, offsets
from kernelwright.tools.codegen.cuda.families.reductions.waves import reduces_then_writes
from kernelwright.tools.codegen.cuda.families.row_shapes import row_family
from kernelwright.tools.codegen.cuda.printing.case import REGISTERS, Case, first
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.kernels import Body, Load
from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace
from kernelwright.tools.codegen.cuda.printing.printing import Printer, Stream
from kernelwright.tools.codegen.cuda.printing.schedule import Kept, struct_bytes
from kernelwright.tools.codegen.ir import Emitted, Strategy

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
_MEETING_US = 2.3
_MEETING_US_A_BLOCK = 0.018
_US_A_KIB = {True: 0.075, False: 0.09}
# What is left of a meeting that the next row's reduction covers. A lag was the best nowhere.
_LAGGED_US = 2.2


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
    """The geometry of a loop's ring."""

    case: Case

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
        return f"{self.case.multiprocessors} * {{BLOCKS}} // {{GROUP}}"

    def _fits(self) -> Iterator[Fit]:
        for blocks in (2, 3, 4, 1):
            for unroll in UNROLLS:
                slots = self._slots(blocks, unroll)
                if slots >= 2 and (blocks == 2 or blocks == 1 or unroll == UNROLLS[-1]):
                    for group in self._groups(blocks):
                        yield self._fit(group, blocks, unroll, lag=False)
                        if slots > 2 * self._tiles(group, unroll):
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
        return max(1, min(case.nest.rows, case.multiprocessors * blocks // group))

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
        meeting_us = _MEETING_US + _MEETING_US_A_BLOCK * group
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


GRID = "grid_rows_ring"
NAMES = (GRID,)

_TITLE = "A group of resident blocks a row, the row in a ring of bulk copies"
# Of what the model of rounds above says, on one H200.
_EFFICIENCY = 0.85
_GROUPS_TRIED = 5
_FEWEST_REGISTERS = 64  # a thread's; fewer would spill


@dataclass(frozen=True)
class Fetches:
    """What bulk copies bring: pointers, and each load with the bytes an element before it."""

    streams: tuple[Stream, ...]
    decode: tuple[str, ...]
    loads: tuple[tuple[Load, int], ...]


def strategies(case: Case) -> list[Strategy]:
    """The ring, where a pass that reduces, then one that writes, go over rows to be copied."""
    return [_strategy(fits[0])] if (fits := Ring(case).fits()) else []


def _strategy(fit: Fit) -> Strategy:
    return Strategy(
        name=GRID,
        title=_TITLE,
        mechanism="Bulk copies bring a row's tiles into a ring of shared memory in the order in "
        "which they are reduced; the blocks exchange partials through memory and write the tiles "
        "from where they lie, and each slot takes a later tile as soon as it is free.",
        reason="As much of a row as fits on chip is read from memory once, and copies stay under "
        "way while blocks reduce, meet and store.",
        category="memory",
        metric="dram bytes read",
        memory="row in a ring of bulk copies",
        compute="2 passes",
        parallel="resident blocks per row",
        bytes_read_factor=round(fit.reads, 3),
        efficiency=round(max(0.02, _EFFICIENCY * fit.share), 3),
        launches=2,
    )


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a ring.

    Raises:
        ValueError: When it does not fit.
    """
    ring = Ring(case)
    fits = ring.fits()
    if not fits:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest, printer = case.nest, Printer(case.nest, case.along_rows)
    plain = Body(printer, case.schedule, prefix)
    code = plain.passes()[0]
    reduce, last = Body(printer, case.schedule, prefix, ring.keeps, preloaded=True).passes()
    tunables = _tunables(ring, fits, prefix)
    source = render(
        "ring",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        code=code,
        reduce=reduce,
        last=last,
        fetches=_fetches(ring, plain),
        keeps=offsets(ring.keeps),
        kept_bytes=ring.bytes_each,
        run=ring.run,
        most_slots=MOST_SLOTS,
        ahead_one_in=AHEAD_ONE_IN,
        stream_one_in=STREAM_ONE_IN,
        chunk=f"(COLUMNS + GROUP * {ALIGN} - 1) / (GROUP * {ALIGN}) * {ALIGN}",
        room=f"({ring.shared_bytes} / {tunables.named('{BLOCKS}')} - {ring.reserved_bytes})",
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        before=plain.before,
        before_stores=plain.before_stores,
    )
    groups = f"min({nest.rows}, {ring.groups_text()})"
    grid = tunables.named(f"{groups} * {{GROUP}}")
    shared = tunables.named(_shared_text(ring))
    launch = Launch(f"{prefix}_ring", grid, tunables.named("{THREADS}"), shared)
    arguments = [
        *buffer_arguments(nest),
        Argument("parts", "long long* parts", f"{prefix}_parts"),
        Argument("counters", "unsigned int* counters", f"{prefix}_counters"),
    ]
    text, plan = complete(source, arguments, [launch])
    words = tunables.named(f"ceil_div({nest.rows} * {{GROUP}} * {code.part_bytes}, 8)")
    lines = (
        f'{prefix}_parts = empty(({words},), dtype="int64")',
        f'{prefix}_counters = zeros(({nest.rows + 1},), dtype="int32")',
    )
    return Emitted(source=text, plan=(*lines, *plan))


def _fetches(ring: Ring, plain: Body) -> Fetches:
    """The copied loads of the first pass."""
    code, printer = plain.passes()[0], plain.printer
    names = [one.stmt.name for one in ring.keeps]
    before = {f"raw_{placed.stmt.name}": placed.before for placed in offsets(ring.keeps)}
    return Fetches(
        streams=tuple(printer.streams(names, ())),
        decode=tuple(printer.walk_decode([printer.nest.places[name] for name in names])),
        loads=tuple((load, before[load.raw]) for load in code.loads if load.raw in before),
    )


def _tunables(ring: Ring, fits: list[Fit], prefix: str) -> Tunables:
    case, best = ring.case, fits[0]
    # More threads spilled, and narrower vectors lost, wherever they were measured.
    tunables = Tunables(prefix).add("THREADS", first(THREADS, [128, 256]))
    tunables.add("VECTOR", case.along_rows.widths[:1])
    tunables.add("UNROLL", first(best.unroll, [*UNROLLS, 1])).add("GROUP", _groups(fits))
    tunables.add("BLOCKS", first(best.blocks, [2, 3, 4, 1]))
    tunables.add("LAG", (int(best.lag), 1 - int(best.lag)))
    # Copies have policies of their own; this one is for what they do not bring.
    others = {p.buffer for p in case.nest.places.values() if any(p.inner)}
    others -= {case.nest.places[one.stmt.name].buffer for one in ring.keeps}
    tunables.add("RETAIN", (1, 0)).add("LOADS", (1, 0) if others - {""} else (1,))
    tunables.add("STORES", (1, 0))
    tunables.require(f"{{GROUP}} <= {case.multiprocessors} * {{BLOCKS}}")
    tunables.require(f"{{THREADS}} * {{BLOCKS}} <= {REGISTERS // _FEWEST_REGISTERS}")
    return tunables.require(f"{_room_text(ring)} >= 2 * {_tile_bytes_text(ring)}")


def _groups(fits: list[Fit]) -> list[int]:
    """The best number of blocks a row, then the best of the other ways to share the device."""
    best = {(fit.blocks, fit.lag): fit.group for fit in reversed(fits)}
    near = [fit.group for fit in fits if (fit.blocks, fit.lag) == (fits[0].blocks, fits[0].lag)]
    wanted = dict.fromkeys(best[(fit.blocks, fit.lag)] for fit in fits)
    return list(dict.fromkeys([*wanted, *near]))[:_GROUPS_TRIED]


def _room_text(ring: Ring) -> str:
    """Bytes of a block's ring at most, over tunables in braces."""
    return f"({ring.shared_bytes} // {{BLOCKS}} - {ring.reserved_bytes})"


def _tile_bytes_text(ring: Ring) -> str:
    return f"({{THREADS}} * {{VECTOR}} * {{UNROLL}} * {ring.bytes_each})"


def _shared_text(ring: Ring) -> str:
    """Shared memory of a block: its slots, as the kernel counts them."""
    tile = "({THREADS} * {VECTOR} * {UNROLL})"
    chunk = f"(ceil_div({ring.case.nest.columns}, {{GROUP}} * {ALIGN}) * {ALIGN})"
    fitting = f"min({_room_text(ring)} // {_tile_bytes_text(ring)}, {MOST_SLOTS})"
    # Of use are the row's slots, the next one's, and with a lag those of the one before.
    wanted = f"(2 + {{LAG}}) * ceil_div({chunk}, {tile})"
    return f"min({fitting}, {wanted}) * {_tile_bytes_text(ring)}"


RING_FAMILY = row_family(NAMES, strategies, emit)
