"""Strategies for reductions across the contiguous axis: sums over leading or middle dimensions.

Threads lie along neighbouring rows, so that accesses are wide although each row is strided.
"""

from kernelwright.tools.codegen.cuda.families import columns_split
from kernelwright.tools.codegen.cuda.families.column_shape import (
    common,
    declare,
    grid,
    heights,
    limit,
    meets,
)
from kernelwright.tools.codegen.cuda.families.keeping import offsets
from kernelwright.tools.codegen.cuda.families.taking import column_family
from kernelwright.tools.codegen.cuda.printing.body import Body
from kernelwright.tools.codegen.cuda.printing.case import LANE_WORDS, Case, first, powers
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.rendering import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy

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
    if columns_split.fits(case):
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
        return columns_split.emit(case, prefix, _TITLES[SPLIT])
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
        words = _words(case)
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


def _words(case: Case) -> int:
    return max(1, sum((k.bytes_each + 3) // 4 for k in case.keeps(case.along_columns)))


def _register_heights(case: Case) -> list[int]:
    """Threads above each other that can hold a row in registers, one wide vector each."""
    columns, words = case.nest.columns, _words(case)
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


COLUMN_FAMILY = column_family(NAMES, strategies, emit)
