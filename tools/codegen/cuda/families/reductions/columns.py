"""Strategies for reductions across the contiguous axis: sums over leading or middle dimensions.

Threads lie along neighbouring rows, so that accesses are wide although each row is strided. Here is
also what all such strategies have in common: the block's two sides.

Where few rows would leave most multiprocessors idle, the walk is cut over blocks. As many blocks as
run at once take a share each, so that none is left for a last wave that fills a part of the device;
they are large, as what each leaves has to be joined.
"""

from kernelwright.tools.codegen.cuda.families.reductions.row_tunables import offsets
from kernelwright.tools.codegen.cuda.families.row_shapes import column_family
from kernelwright.tools.codegen.cuda.families.window_walks import Held
from kernelwright.tools.codegen.cuda.printing.case import LANE_WORDS, Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.kernels import (
    Body,
    allocations,
    kernels_of,
    partial_arguments,
)
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.ir import Emitted, Strategy

# Static shared memory in which the threads above each other meet.
STATIC_SHARED = 47 * 1024


def common(case: Case, printer: Printer, body: Body) -> dict[str, object]:
    """What every skeleton of columns is filled with."""
    return {
        "index": printer.index,
        "row_index": printer.row_index,
        "columns": case.nest.columns,
        "width": case.nest.kept[-1],
        "row_decode": printer.row_decode(),
        "before": body.before,
        "before_stores": body.before_stores,
    }


def grid(case: Case) -> str:
    """Blocks that cover the rows, over tunables in braces."""
    width = case.nest.kept[-1]
    return f"ceil_div({width}, {{TX}} * {{VECTOR}}) * {case.nest.rows // width}"


def declare(case: Case, tunables: Tunables) -> None:
    """Declares the side along the rows."""
    tunables.add("TX", first(side_by_side(case), widths(case)))
    tunables.add("VECTOR", case.along_columns.widths)


def side_by_side(case: Case) -> int:
    """Threads of a block along the rows, by the first choice."""
    moved = max((p.dtype.itemsize_bytes for p in case.nest.streams()), default=4)
    # Half a kilobyte side by side keeps a row of accesses in one page of memory.
    best = max(32, 512 // (moved * case.along_columns.widths[0]))
    return first(best, widths(case))[0]


def widths(case: Case) -> list[int]:
    """Threads side by side."""
    vectors = -(-case.nest.kept[-1] // case.along_columns.widths[0])
    found = [n for n in powers(1, 256) if n < 2 * vectors and (n >= 8 or n >= vectors)]
    return found or [1]


def limit(case: Case, tunables: Tunables) -> None:
    """Requires a block that is large enough, and room for its exchange."""
    tunables.require("{TX} * {TY} <= 1024").require("{TX} * {TY} >= 32")
    most = part_bytes(case)
    if most:
        # What the threads above each other exchange lies in static shared memory.
        tunables.require(f"{{TX}} * {{TY}} * {{VECTOR}} * {most} <= {STATIC_SHARED}")


def part_bytes(case: Case) -> int:
    """What one thread gives to those above it."""
    codes = Body(Printer(case.nest, case.along_columns), case.schedule, "x").passes()
    return max((code.part_bytes for code in codes), default=0)


def meets(case: Case, height: int) -> bool:
    """Whether some block of that height is large enough, and its exchange fits."""
    threads = [height * width for width in widths(case) if 32 <= height * width <= 1024]
    return bool(threads) and min(threads) * part_bytes(case) <= STATIC_SHARED


def heights(case: Case, best: int = 8, most: int = 32) -> list[int]:
    """Threads above each other, the best guess first; none where their exchange has no room."""
    fits = [n for n in powers(1, most) if n < 2 * case.nest.columns and meets(case, n)]
    return first(best, fits) if fits else []


# Threads of a block; and of a multiprocessor, by the values that each has under way: they leave it
# 64, 80 or 128 registers (moments of a vector, four times read ahead, spilled with 64).
_THREADS = 256
_AT_ONCE = ((24, 1024), (40, 768))
_LEAST_AT_ONCE = 512
_BLOCKS_AT_ONCE = 32  # of a multiprocessor


def fits(case: Case) -> bool:
    """Whether there is a walk to cut."""
    return bool(case.schedule.passes) and bool(heights(case)) and max(_splits(case)) > 1


def emit_split(case: Case, prefix: str, title: str) -> Emitted:
    """Print a column loop with its walk cut.

    Raises:
        ValueError: When there is nothing to split.
    """
    if not case.schedule.passes:
        raise ValueError(f"{case.loop.name}: nothing to split")
    nest = case.nest
    printer = Printer(nest, case.along_columns)
    body = Body(printer, case.schedule, prefix)
    kernels = kernels_of(body, prefix)
    tunables = _tunables(case, prefix)
    threads, splits = tunables.named("{TX} * {TY}"), tunables.named("{SPLITS}")
    loads, part = _words(case)
    under_way = tunables.named(f"{{VECTOR}} * ({{UNROLL}} * {loads} + {part})")
    tiers = " : ".join(f"{under_way} <= {most} ? {number}" for most, number in _AT_ONCE)
    fitting = f"({tiers} : {_LEAST_AT_ONCE}) / ({threads})"
    source = render(
        "columns_split",
        title=title,
        prefix=tunables.prefix,
        tunables=tunables.text(),
        kernels=kernels,
        passes=body.passes(),
        rows=nest.rows,
        joiners=_joiners(case),
        at_once=f"{fitting} > 0 ? {fitting} : 1",
        **common(case, printer, body),
    )
    tiles = tunables.named(grid(case))
    joiners = _joiners(case)
    joining = str(-(-nest.rows // joiners)), str(32 * joiners)
    launches = [
        Launch(kernel.name, *(joining if kernel.joins else (f"{tiles} * {splits}", threads)))
        for kernel in kernels
    ]
    arguments = [*buffer_arguments(nest), *partial_arguments(kernels, prefix)]
    text, plan = complete(source, arguments, launches)
    lines = allocations(kernels, prefix, nest.rows, splits)
    return Emitted(source=text, plan=(*lines, *plan))


def _joiners(case: Case) -> int:
    """Warps of a block that joins partials, one a row.

    The lanes of a warp read lines far apart, as neighbouring rows' partials are neighbours: few
    rows go to as many multiprocessors as there are. 64 rows of 392 partials took 17 and 18 us on an
    H200 in blocks of four and of eight warps, partials read in four words
    (`model_kernels_networks_later.jsonl`); what blocks of one warp take was not measured.
    """
    return min(8, max(1, case.nest.rows // (case.multiprocessors * _BLOCKS_AT_ONCE)))


def _tunables(case: Case, prefix: str) -> Tunables:
    tunables = Tunables(prefix)
    declare(case, tunables)
    tunables.add("TY", _heights(case)).add("UNROLL", case.unrolls(case.along_columns))
    tunables.add("SPLITS", _splits(case))
    limit(case, tunables)
    return tunables.add("LOADS", (0, 1)).add("STORES", (1, 0))


def _heights(case: Case) -> list[int]:
    """Threads above each other: first as many as make up a block."""
    side = side_by_side(case)
    room = STATIC_SHARED // max(1, side * case.along_columns.widths[0] * part_bytes(case))
    best = min(max(1, _THREADS // side), 1 << max(0, room.bit_length() - 1))
    return heights(case, best, max(32, best))


def _words(case: Case) -> tuple[int, int]:
    """What a thread has under way for each row: values that it reads, and words of its partial."""
    levels = case.nest.levels
    loads = sum(s.op == "load" and levels[s.name] == "element" for s in case.loop.body)
    return max(1, loads), -(-part_bytes(case) // 4)


def _splits(case: Case) -> list[int]:
    """Shares of the walk: first as many as let all blocks run at once, then fewer and more."""
    width, side = case.along_columns.widths[0], side_by_side(case)
    loads, part = _words(case)
    values = width * (case.unrolls(case.along_columns)[0] * loads + part)
    threads = next((n for most, n in _AT_ONCE if values <= most), _LEAST_AT_ONCE)
    at_once = case.multiprocessors * (threads // (side * _heights(case)[0]))
    last = case.nest.kept[-1]
    tiles = -(-last // (side * width)) * (case.nest.rows // last)
    most = max(1, case.nest.columns // 16)
    wanted = [at_once * share // (2 * tiles) for share in (2, 1, 4, 8)]
    return list(dict.fromkeys(max(1, min(most, n)) for n in wanted))


REGISTERS = "columns_registers"
STREAM = "columns_stream"
SPLIT = "columns_split"
NAMES = (REGISTERS, STREAM, SPLIT)

# A single pass keeps nothing; only short columns gain from loading all at once.
_ALL_AT_ONCE = 256
_TITLES = {
    REGISTERS: "Threads along the rows, their columns in registers",
    STREAM: "Threads along the rows, columns read again for each pass",
    SPLIT: "Threads along the rows, columns split over blocks",
}
_MECHANISMS = {
    REGISTERS: "Lanes take neighbouring rows as vectors; the threads above each other hold the "
    "reduced axis in registers and join through shared memory.",
    STREAM: "Lanes take neighbouring rows as vectors; the threads above each other walk along the "
    "reduced axis with several loads in flight and join through shared memory.",
    SPLIT: "Besides, the reduced axis is cut over as many blocks as run at once; they leave "
    "partials in memory, which a small kernel joins.",
}
_REASONS = {
    REGISTERS: "Reads are wide and coalesced, and memory is read once however many passes follow.",
    STREAM: "Reads are wide and coalesced although each row is strided.",
    SPLIT: "Few rows leave most multiprocessors idle; shares of the reduced axis fill them.",
}


def strategies(case: Case) -> list[Strategy]:
    """The column shapes that fit."""
    passes = len(case.schedule.passes)
    found = []
    if _register_heights(case):
        found.append(_strategy(case, REGISTERS, 1.0, _filled(case, 1) * 0.88, 1))
    again = 1.0 if passes < 2 else _reads(case, passes)
    if not heights(case):
        return found
    found.append(_strategy(case, STREAM, again, _filled(case, 1) * 0.88, 1))
    if fits(case):
        launches = passes + len(case.schedule.reducing)
        found.append(_strategy(case, SPLIT, again, 0.85, launches))
    return sorted(found, key=lambda one: one.bytes_read_factor / one.efficiency)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a column loop.

    Raises:
        ValueError: When the strategy does not fit.
    """
    if not case.nest.kept:
        raise ValueError(f"{case.loop.name}: {name} needs rows to lie along")
    if name == SPLIT:
        return emit_split(case, prefix, _TITLES[SPLIT])
    nest, vectors = case.nest, case.along_columns
    keeps = case.keeps(vectors) if name == REGISTERS else ()
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix, keeps)
    tunables = Tunables(prefix)
    declare(case, tunables)
    if name == REGISTERS:
        fitting = _register_heights(case)
        if not fitting:
            raise ValueError(f"{case.loop.name}: {name} does not fit")
        tunables.add("TY", fitting)
        words = _words_of_columns(case)
        tunables.require(
            f"({nest.columns} + {{TY}} - 1) // {{TY}} * {{VECTOR}} * {words} <= {LANE_WORDS}"
        )
    else:
        tunables.add("TY", heights(case)).add("UNROLL", case.unrolls(vectors))
    limit(case, tunables)
    tunables.add("LOADS", (0, 1)).add("STORES", (1, 0))
    source = render(
        "columns",
        title=_TITLES[name],
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        keep="registers" if name == REGISTERS else "none",
        keeps=offsets(keeps),
        passes=body.passes(),
        **common(case, printer, body),
    )
    blocks = tunables.named(grid(case))
    launch = Launch(f"{prefix}_columns", blocks, tunables.named("{TX} * {TY}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def _words_of_columns(case: Case) -> int:
    return max(1, sum((k.bytes_each + 3) // 4 for k in case.keeps(case.along_columns)))


def _register_heights(case: Case) -> list[int]:
    """Threads above each other that can hold a row in registers, one wide vector each."""
    columns, words = case.nest.columns, _words_of_columns(case)
    widest = case.along_columns.widths[0]
    fits = [n for n in powers(1, 64) if -(-columns // n) * words <= LANE_WORDS and n <= columns]
    fits = [n for n in fits if meets(case, n)]
    wide = [n for n in fits if -(-columns // n) * words * widest <= LANE_WORDS]
    one_pass = len(case.schedule.passes) < 2
    if not fits or not case.schedule.passes or (one_pass and columns > _ALL_AT_ONCE):
        return []
    return first(wide[0] if wide else fits[-1], fits)


def _filled(case: Case, splits: int) -> float:
    tiles = case.nest.rows * splits / (32 * case.along_columns.widths[0])
    return min(1.0, max(0.02, tiles / (2 * case.multiprocessors)))


def _reads(case: Case, passes: int) -> float:
    moved = case.row_bytes * min(case.nest.rows, 4096 * case.multiprocessors)
    return 1.1 if moved < case.cache_bytes else float(passes)


def _strategy(case: Case, name: str, reads: float, efficiency: float, launches: int) -> Strategy:
    passes = len(case.schedule.passes)
    return Strategy(
        name=name,
        title=_TITLES[name],
        mechanism=_MECHANISMS[name],
        reason=_REASONS[name],
        category="parallelism" if name == SPLIT else "memory",
        metric="achieved occupancy" if name == SPLIT else "dram throughput",
        memory="columns in registers" if name == REGISTERS else "streamed columns",
        compute=f"{passes} passes" if passes > 1 else "one pass",
        parallel="split columns" if name == SPLIT else "threads along rows",
        bytes_read_factor=reads,
        efficiency=round(efficiency, 3),
        launches=launches,
    )


def _held(case: Case, name: str) -> Held:
    """Short columns in registers are read, and what is made of them computed, once."""
    return Held(case.keeps(case.along_columns)) if name == REGISTERS else Held()


COLUMN_FAMILY = column_family(NAMES, strategies, emit, _held)
