"""Strategies that keep a part of each row in the shared memory of the blocks that share it.

Several rows share the multiprocessors, so that they load, meet and store at different times;
what does not fit on chip is little enough to be still in the L2 when it is read again. The blocks
of a row are a cluster, or a group of blocks that meet through memory; a group may be larger, and
needs no clusters of the device. `Partly` says how many blocks share a row, and what to expect of
it.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

from kernelwright.tools.codegen.cuda.families.reductions.row_tunables import (
    kept_bytes,
    offsets,
    streaming_clusters,
)
from kernelwright.tools.codegen.cuda.families.row_shapes import narrowed, row_family
from kernelwright.tools.codegen.cuda.printing.case import KIB, REGISTERS, Case, first
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.kernels import Body
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.schedule import Kept, struct_bytes
from kernelwright.tools.codegen.cuda.printing.vectors import PEELED, Vectors, row_start
from kernelwright.tools.codegen.ir import Emitted, Strategy

# Two blocks of many threads: rows take turns, and a thread still has the registers for a batch.
THREADS, BLOCKS = 512, 2
UNROLLS = (4, 2, 8)
# Values of a batch that a thread can have besides what it computes.
_BATCH_VALUES = 32
# Shares of a row that are wanted: a little more than two blocks of a multiprocessor can hold. With
# 128 KiB each, clusters were fastest on rows of 0.5 and 1 MiB; half of that took 1.2 to 1.7 times
# as long (one H200).
_SHARE_BYTES = 144 * KIB
# Blocks of a cluster that every device with clusters can run together.
_PLACED = 8
# Blocks of a group: so few would be a cluster's affair, and smaller shares are not worth a block.
_FEWEST, _SMALLEST_SHARE_BYTES = 4, 32 * KIB
_GROUPS_TRIED = 5
# What is left of the time where whole batches make a row, so that nothing asks for its end: 12
# blocks for a softmax were 8 % faster than 11 and 13; 8 for an instance norm as fast as 9 and 10.
# Where few rows are under way it is no gain (group norm: 4.40 ms with 64 blocks, 4.08 with 52).
_WHOLE_BATCHES = 0.96
# By what power of two the sizes that are tried differ.
_UNLIKE = 0.2
# What a meeting takes while it hides behind nothing, as bytes of a share that could have moved, and
# what each round loses where few rows are under way: a part of it, as these only read or only write
# together, and more the smaller shares are. Fitted to rows of 0.5, 1, 1.5, 8 and 64 MiB shared by 4
# to 132 blocks (H200s, round `groups` of benchmarks/codegen/gpu_strategies.py, the last by hand).
_MEETING_BYTES, _FEW, _FEW_BYTES = 20 * KIB, 0.31, 151 * KIB
# Of a group's share, the part that may be read again (of a batch norm's rows of 64 MiB 0.77, which
# was still 3 to 5 % faster than reading all twice); and of the cache, what all shares together may
# leave to it.
_MOST_AGAIN, _MOST_OF_CACHE = 0.8, 0.5
# Rows under way that are few for hints of caching.
_FEW_ROWS = 8
# Of shared memory, besides the row: the system's, and what the blocks of a row exchange.
_SYSTEM_BYTES = 1024
# Measured on one H200, where little or nothing came from memory twice: 0.84 of the bandwidth with
# two passes over rows of 1 and 1.5 MiB; of that, what rows read in accesses of 4 bytes leave.
_EFFICIENCY, _NARROW = 0.865, 0.71
# Where all of a row is held, no block of a cluster reduces while its copies come (rows of 256 KiB).
_HELD_WHOLE = 0.95
# Of that, what groups reach apart from their meetings, in the same round: 0.86 to 0.91 in all.
_GROUPED = 1.31
# What the L2 answers crosses the chip too: its price beside a read of memory; and the cache's speed
# over memory's, for what rows share. Both were fitted to rings (ring.py).
_CACHE_PRICE, _CACHE_SPEED = 0.57, 1.4


@dataclass(frozen=True)
class Partly:
    """A loop whose rows stay partly on chip; `groups` says that blocks meet through memory."""

    case: Case
    groups: bool

    @property
    def fits(self) -> bool:
        """Whether rows are long and worth keeping, copies apply, and enough blocks run at once."""
        several = len(self.case.schedule.passes) > 1
        return several and bool(self.keeps and self.widths and self.members)

    @property
    def vectors(self) -> Vectors:
        """What moves rows; the ends of those that lie at odd places are peeled."""
        return self.case.peeled_rows or self.case.along_rows

    @cached_property
    def keeps(self) -> tuple[Kept, ...]:
        """The loads of which a part stays."""
        return self.case.keeps(self.vectors, loads_only=True)

    @property
    def widths(self) -> list[int]:
        """Vectors that an asynchronous copy can move: 4, 8 or 16 bytes for every kept load."""
        sizes = [one.bytes_each for one in self.keeps]
        fitting = [
            width
            for width in self.vectors.widths
            if all(width * size in (4, 8, 16) for size in sizes)
        ]
        # Of rows that are peeled, the widest and the narrowest, which peels nothing where it fits.
        peels = self.case.peeled_rows is not None
        return fitting[:: max(1, len(fitting) - 1)] if peels else fitting[:2]

    @cached_property
    def members(self) -> list[int]:
        """How many blocks share a row, the best guess first; none where none fit."""
        return self._groups() if self.groups else self._clusters()

    def _clusters(self) -> list[int]:
        """First the smallest whose shares are nearly held whole, else the largest.

        What only some devices can place is tried but never first: with blocks of 512 threads
        clusters of 16 took 1.2 to 1.7 times as long as clusters of 8, though more of a row stayed
        on chip.
        """
        sizes = streaming_clusters(self.case)
        placed = [size for size in sizes if size <= _PLACED] or sizes
        whole = [size for size in placed if self.case.read_bytes <= size * _SHARE_BYTES]
        return first(min(whole, default=max(placed)), sizes) if sizes else []

    def _groups(self) -> list[int]:
        """By what they leave idle and read again, each unlike those before it.

        At least two rows are always under way, and what is read again is left to the cache where
        any size lets it.

        A group of no more blocks than half of those that are planned to run at once also runs
        where the device places only one of them on a multiprocessor.
        """
        most = min(self.resident // 2, self._kept_of_row // _SMALLEST_SHARE_BYTES)
        shares = {n: self.share(n) for n in range(_FEWEST, most + 1)}
        fitting = [n for n, (share, again) in shares.items() if again <= _MOST_AGAIN * share]
        allowed = _MOST_OF_CACHE * self.case.cache_bytes / self.resident
        cached = [n for n in fitting if shares[n][1] <= allowed]
        chosen: list[int] = []
        for members in sorted(
            cached or fitting, key=lambda members: (self._cost(members), members)
        ):
            if all(abs(log2(members / other)) >= _UNLIKE for other in chosen):
                chosen.append(members)
        return chosen[:_GROUPS_TRIED]

    def _cost(self, members: int) -> float:
        share, again = self.share(members)
        cost = (2 + _CACHE_PRICE * again / share) / self.filled(members) / self._met(members)
        batch = THREADS * members * self.widths[0] * self.unrolls[0]
        whole = self.case.nest.columns % batch == 0 and self.rows(members) > _FEW_ROWS
        return cost * _WHOLE_BATCHES if whole else cost

    def rows(self, members: int) -> int:
        """How many rows are under way at once."""
        return self.resident // members

    def _met(self, members: int) -> float:
        """The part of the time in which memory is kept busy, although groups wait and meet."""
        (share, _), rows = self.share(members), min(self.rows(members), self.case.nest.rows)
        # The first rows only read, while the last only write.
        waits = 1 + rows / self.case.nest.rows
        few = (_FEW + _FEW_BYTES / share) / rows
        return 1 / (1 + _MEETING_BYTES / share) / (1 + few) / waits

    @property
    def resident(self) -> int:
        """Blocks that run at once."""
        return self.case.multiprocessors * BLOCKS

    def filled(self, members: int) -> float:
        """The share of the device that has a row, over all rounds of rows."""
        rows = self.case.nest.rows
        if not self.groups:
            # Rows follow each other; there should be more than two rounds of them.
            return min(1.0, rows * members / (2 * self.resident))
        running = self.rows(members)
        rounds = ceil(rows / running)
        return running * members / self.resident * rows / (rounds * running)

    def share(self, members: int) -> tuple[int, int]:
        """Bytes of a row that a block has, and how many of them are read again."""
        share = ceil(self._kept_of_row / members)
        room = (self.case.shared_bytes + 3 * KIB) // BLOCKS - self.reserved_bytes
        return share, max(0, share - room)

    @cached_property
    def reserved_bytes(self) -> int:
        """Shared memory of a block that holds none of the row."""
        printer = Printer(self.case.nest, self.vectors)
        parts = [printer.members(one) for one in self.case.schedule.reducing]
        # A partial for each of at most 32 warps, and one for the block or the group.
        return _SYSTEM_BYTES + sum(34 * struct_bytes(members) + 16 for members in parts)

    @property
    def loads(self) -> tuple[int, int]:
        """Whether what is read is marked to leave the cache first; the first choice first.

        Without, groups with many rows under way took 1 % more to 5 % less time, and with few 8 %
        more (three rounds on H200s).
        """
        many = self.groups and self.rows(self.members[0]) > _FEW_ROWS
        return (0, 1) if many else (1, 0)

    @property
    def unrolls(self) -> list[int]:
        """Vectors a batch, first the most whose values a thread can have at once."""
        case = self.case
        places = (case.nest.places[stmt.name] for stmt in case.loop.body if stmt.op == "load")
        loads = len({place.buffer for place in places if any(place.inner[-1:])})
        few = [n for n in UNROLLS if n * self.widths[0] * loads <= _BATCH_VALUES]
        return first(min(UNROLLS[0], max(few, default=min(UNROLLS))), list(UNROLLS))

    @property
    def reads(self) -> float:
        """How often a row comes from memory: what is not on chip meets what the L2 still has."""
        share, again = self.share(self.members[0])
        found = min(1.0, 1.25 * self.case.cache_bytes / (again * self.resident)) if again else 1.0
        passes = len(self.case.schedule.passes)
        return round(1 + (passes - 1) * (again / share) * (1 - found), 3)

    @property
    def efficiency(self) -> float:
        """The share of bandwidth to expect: rows must fill the device more than once."""
        case, vectors = self.case, self.vectors
        base = _EFFICIENCY - 0.01 * len(case.schedule.passes)
        base *= narrowed(case, _NARROW, vectors)
        if vectors is not case.along_rows:
            base *= PEELED
        if self.groups:
            base *= _GROUPED * self._met(self.members[0]) * self._spared
        elif self.share(self.members[0])[1] == 0:
            base *= _HELD_WHOLE
        return round(base * max(self.filled(self.members[0]), 0.02), 3)

    @property
    def _spared(self) -> float:
        """What is left where all rows read the same columns, as weights, out of the cache."""
        case = self.case
        if not case.shares_columns:
            return 1.0
        places = (case.nest.places[s.name] for s in case.loop.body if s.op == "load")
        shared = {p.buffer: p.dtype.itemsize_bytes for p in places if not any(p.outer)}
        crossing = self._kept_of_row + case.nest.columns * sum(shared.values())
        return min(1.0, 2 * self._kept_of_row * _CACHE_SPEED / crossing)

    @property
    def kept_bytes(self) -> int:
        """Bytes an element that stay."""
        return kept_bytes(self.keeps)

    @property
    def _kept_of_row(self) -> int:
        """Bytes of a row that would stay if there were room."""
        return self.case.nest.columns * self.kept_bytes


PARTLY = "cluster_rows_partly"
GRID = "grid_rows_partly"
NAMES = (PARTLY, GRID)
_TITLES = {
    PARTLY: "A cluster a row, part of it in shared memory",
    GRID: "A group of resident blocks a row, most of it in shared memory",
}
_WHERE = {PARTLY: "of a cluster's blocks", GRID: "of blocks that meet through memory"}
_FEWEST_REGISTERS = 64  # a thread's; fewer would spill


def strategies(case: Case) -> list[Strategy]:
    """Part of the row on chip, where blocks share rows that need more than one pass."""
    shapes = {name: Partly(case, groups=name == GRID) for name in NAMES}
    return [_strategy(name, shape) for name, shape in shapes.items() if shape.fits]


def _strategy(name: str, shape: Partly) -> Strategy:
    passes = len(shape.case.schedule.passes)
    return Strategy(
        name=name,
        title=_TITLES[name],
        mechanism="Asynchronous copies bring as much of a row as fits into the shared memory "
        f"{_WHERE[name]}, while the rest is read and reduced; later passes read that rest again, "
        "the other part where it lies.",
        reason="Several rows share the multiprocessors, so that one loads while another "
        "meets or stores, and still only little of them has to stay in the L2.",
        category="memory",
        metric="dram bytes read",
        memory="row partly in shared memory, asynchronous copies",
        compute=f"{passes} passes",
        parallel="resident blocks per row" if shape.groups else "cluster per row",
        bytes_read_factor=shape.reads,
        efficiency=shape.efficiency,
        launches=2 if shape.groups else 1,
    )


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop whose rows stay partly on chip.

    Raises:
        ValueError: When it does not fit.
    """
    shape = Partly(case, groups=name == GRID)
    if not shape.fits:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest, keeps, vectors = case.nest, shape.keeps, shape.vectors
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix)
    held = Body(printer, case.schedule, prefix, keeps, preloaded=True)
    streamed = body.passes()
    names = {f"raw_{one.stmt.name}" for one in keeps}
    tunables = _tunables(shape, prefix)
    source = render(
        "partly",
        title=_TITLES[name],
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        members=tunables.named(_members(shape)),
        grid=shape.groups,
        streamed=streamed,
        passes=held.passes(),
        copied=[load for load in streamed[0].loads if load.raw in names],
        keeps=offsets(keeps),
        kept_bytes=shape.kept_bytes,
        room=tunables.named(_room_text(shape, "/")),
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        # Where rows are peeled, how far the row's start lies from a multiple of 16 bytes.
        start="" if vectors is case.along_rows else printer.base(row_start(nest, vectors)),
        before=body.before,
        before_stores=body.before_stores,
    )
    launch = Launch(
        f"{prefix}_partly",
        tunables.named(f"{nest.rows} * {_members(shape)}"),
        tunables.named("{THREADS}"),
        tunables.named(_shared_text(shape)),
        "" if shape.groups else tunables.named("{CLUSTER}"),
    )
    # What the blocks of a row tell each other, pass by pass.
    parts = {
        f"parts{code.number}": tunables.named(
            f"ceil_div({nest.rows} * {_members(shape)} * {code.part_bytes}, 8)"
        )
        for code in streamed
        if code.part and shape.groups
    }
    arguments = [Argument(one, f"long long* {one}", f"{prefix}_{one}") for one in parts]
    arguments.append(Argument("counters", "unsigned int* counters", f"{prefix}_counters"))
    text, plan = complete(source, [*buffer_arguments(nest), *arguments], [launch])
    lines = [f'{prefix}_{one} = empty(({words},), dtype="int64")' for one, words in parts.items()]
    if parts:
        count = 1 + len(parts) * nest.rows
        lines.append(f'{prefix}_counters = zeros(({count},), dtype="int32")')
    return Emitted(source=text, plan=(*lines, *plan))


def _members(shape: Partly) -> str:
    """How many blocks share a row, as a tunable in braces."""
    return "{GROUP}" if shape.groups else "{CLUSTER}"


def _tunables(shape: Partly, prefix: str) -> Tunables:
    tunables = Tunables(prefix).add("THREADS", first(THREADS, [128, 256, 512]))
    tunables.add(_members(shape).strip("{}"), shape.members).add("VECTOR", shape.widths)
    tunables.add("UNROLL", shape.unrolls).add("BLOCKS", first(BLOCKS, [2, 3, 4]))
    tunables.add("LOADS", shape.loads).add("STORES", (1, 0))
    # Fewer registers a thread than this would spill.
    return tunables.require(f"{{THREADS}} * {{BLOCKS}} <= {REGISTERS // _FEWEST_REGISTERS}")


def _room_text(shape: Partly, divide: str) -> str:
    """Bytes of a row that a block can hold, over tunables in braces."""
    whole = shape.case.shared_bytes + 3 * KIB
    return f"({whole} {divide} {{BLOCKS}} - {shape.reserved_bytes})"


def _shared_text(shape: Partly) -> str:
    """Shared memory of a block: whole batches, as the kernel counts them."""
    batch = "({UNROLL} * {THREADS} * {VECTOR})"
    batches = f"ceil_div({shape.case.nest.columns}, {batch} * {_members(shape)})"
    held = f"{batch} * {shape.kept_bytes}"
    return f"min({_room_text(shape, '//')} // ({held}), {batches}) * {held}"


PARTLY_FAMILY = row_family(NAMES, strategies, emit)
