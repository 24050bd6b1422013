"""Strategies that read a row once, or nearly, by bulk copies into a ring in shared memory.

A group of blocks, as a cluster or meeting through memory, shares a row; while it reduces, meets
and writes, the copy engine fills the slots that are free with what comes next. What does not fit
on chip is read again last-first, when the L2 is the likeliest to have it.
"""

from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.families.ring_shape import (
    AHEAD_ONE_IN,
    ALIGN,
    MOST_SLOTS,
    STREAM_ONE_IN,
    THREADS,
    UNROLLS,
    Fit,
    Ring,
)
from kernelwright.tools.codegen.cuda.families.row_shapes import row_family
from kernelwright.tools.codegen.cuda.families.row_tunables import offsets
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
from kernelwright.tools.codegen.cuda.printing.printing import Printer, Stream
from kernelwright.tools.codegen.ir import Emitted, Strategy

CLUSTER = "cluster_rows_ring"
GRID = "grid_rows_ring"
NAMES = (CLUSTER, GRID)

_TITLES = {
    CLUSTER: "A cluster a row, the row in a ring of bulk copies",
    GRID: "A group of resident blocks a row, the row in a ring of bulk copies",
}
_MEETINGS = {CLUSTER: "distributed shared memory", GRID: "memory"}
# Of what the model of rounds in ring_shape.py says, on one H200. Clusters wait for each other.
_EFFICIENCY = {CLUSTER: 0.44, GRID: 0.85}
_GROUPS_TRIED = 5
_FEWEST_REGISTERS = 64  # a thread's; fewer would spill


@dataclass(frozen=True)
class Fetches:
    """What bulk copies bring: pointers, and each load with the bytes an element before it."""

    streams: tuple[Stream, ...]
    decode: tuple[str, ...]
    loads: tuple[tuple[Load, int], ...]


def strategies(case: Case) -> list[Strategy]:
    """The rings that fit: a pass that reduces, then one that writes, over rows to be copied."""
    return [
        _strategy(name, fits[0])
        for name in NAMES
        if (fits := Ring(case, clusters=name == CLUSTER).fits())
    ]


def _strategy(name: str, fit: Fit) -> Strategy:
    return Strategy(
        name=name,
        title=_TITLES[name],
        mechanism="Bulk copies bring a row's tiles into a ring of shared memory in the order in "
        f"which they are reduced; the blocks exchange partials through {_MEETINGS[name]} and "
        "write the tiles from where they lie, and each slot takes a later tile as soon as it is "
        "free.",
        reason="As much of a row as fits on chip is read from memory once, and copies stay under "
        "way while blocks reduce, meet and store.",
        category="memory",
        metric="dram bytes read",
        memory="row in a ring of bulk copies",
        compute="2 passes",
        parallel="cluster per row" if name == CLUSTER else "resident blocks per row",
        bytes_read_factor=round(fit.reads, 3),
        efficiency=round(max(0.02, _EFFICIENCY[name] * fit.share), 3),
        launches=1 if name == CLUSTER else 2,
    )


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a ring.

    Raises:
        ValueError: When it does not fit.
    """
    ring = Ring(case, clusters=name == CLUSTER)
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
        title=_TITLES[name],
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        cluster=ring.clusters,
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
        wanted=_wanted(ring, tunables.prefix),
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
    cluster = tunables.named("{GROUP}") if ring.clusters else ""
    launch = Launch(f"{prefix}_ring", grid, tunables.named("{THREADS}"), shared, cluster)
    arguments = [
        *buffer_arguments(nest),
        Argument("parts", "long long* parts", f"{prefix}_parts"),
        Argument("counters", "unsigned int* counters", f"{prefix}_counters"),
    ]
    text, plan = complete(source, arguments, [launch])
    if ring.clusters:
        return Emitted(source=text, plan=plan)
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
    if not ring.clusters:
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


def _wanted(ring: Ring, prefix: str) -> str:
    """How many rows' slots are of use: the row, the next one, with a lag the one before."""
    return "2" if ring.clusters else f"(2 + {prefix}_LAG)"


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
    wanted = "2" if ring.clusters else "(2 + {LAG})"
    return f"min({fitting}, {wanted} * ceil_div({chunk}, {tile})) * {_tile_bytes_text(ring)}"


RING_FAMILY = row_family(NAMES, strategies, emit)
