"""Strategies for reductions across the contiguous axis: sums over leading or middle dimensions.

Threads lie along neighbouring rows, so that accesses are wide although each row is strided.
"""

from agents.playbook.cuda.body import Body, PassCode
from agents.playbook.cuda.case import LANE_WORDS, Case, first, powers
from agents.playbook.cuda.keeping import offsets
from agents.playbook.cuda.kernels import allocations, kernels_of, partial_arguments
from agents.playbook.cuda.printing import Printer
from agents.playbook.cuda.rendering import Launch, Tunables, buffer_arguments, complete, render
from agents.playbook.ir import Emitted, Strategy

REGISTERS = "columns_registers"
STREAM = "columns_stream"
SPLIT = "columns_split"
NAMES = (REGISTERS, STREAM, SPLIT)

_STATIC_SHARED = 47 * 1024
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
    SPLIT: "Besides, the reduced axis is cut over blocks that leave partials in memory; whoever "
    "needs them combines them.",
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
    if not _heights(case):
        return found
    found.append(_strategy(case, STREAM, again, _filled(case, 1) * 0.88, 1))
    if passes and max(_splits(case)) > 1:
        # One pass that ends in a reduction has no kernel before it to clear its counters.
        fills = int(case.schedule.ends_in_reduction and passes == 1)
        found.append(_strategy(case, SPLIT, again, 0.85, passes + fills))
    return sorted(found, key=lambda one: one.bytes_read_factor / one.efficiency)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a column loop.

    Raises:
        ValueError: When the strategy does not fit.
    """
    if not case.nest.kept:
        raise ValueError(f"{case.loop.name}: {name} needs rows to lie along")
    if name == SPLIT:
        return _emit_split(case, prefix)
    nest, vectors = case.nest, case.along_columns
    keeps = case.keeps(vectors) if name == REGISTERS else ()
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix, keeps)
    tunables = Tunables(prefix)
    _shape(case, tunables)
    if name == REGISTERS:
        heights = _register_heights(case)
        if not heights:
            raise ValueError(f"{case.loop.name}: {name} does not fit")
        tunables.add("TY", heights)
        words = _words(case)
        tunables.require(
            f"({nest.columns} + {{TY}} - 1) // {{TY}} * {{VECTOR}} * {words} <= {LANE_WORDS}"
        )
    else:
        tunables.add("TY", _heights(case)).add("UNROLL", case.unrolls(vectors))
    _limits(case, tunables)
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
        **_common(case, printer, body),
    )
    grid = tunables.named(_grid(case))
    launch = Launch(f"{prefix}_columns", grid, tunables.named("{TX} * {TY}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def _emit_split(case: Case, prefix: str) -> Emitted:
    if not case.schedule.passes:
        raise ValueError(f"{case.loop.name}: nothing to split")
    nest = case.nest
    printer = Printer(nest, case.along_columns)
    body = Body(printer, case.schedule, prefix)
    kernels = kernels_of(body, prefix)
    tunables = Tunables(prefix)
    _shape(case, tunables)
    unrolls = case.unrolls(case.along_columns)
    tunables.add("TY", _heights(case)).add("UNROLL", unrolls).add("SPLITS", _splits(case))
    _limits(case, tunables)
    tunables.add("LOADS", (0, 1)).add("STORES", (1, 0))
    source = render(
        "columns_split",
        title=_TITLES[SPLIT],
        prefix=tunables.prefix,
        tunables=tunables.text(),
        kernels=kernels,
        passes=body.passes(),
        rows=nest.rows,
        **_common(case, printer, body),
    )
    tiles = tunables.named(_grid(case))
    blocks = tunables.named("{TX} * {TY}")
    grid = tunables.named(f"{tiles} * {{SPLITS}}")
    launches = [Launch(kernel.name, grid, blocks) for kernel in kernels]
    arguments = [*buffer_arguments(nest), *partial_arguments(kernels, prefix)]
    text, plan = complete(source, arguments, launches)
    count = tunables.named(f"{nest.rows} * {{SPLITS}}")
    lines = allocations(kernels, prefix, count, tiles if kernels[-1].finishes else "")
    return Emitted(source=text, plan=(*lines, *plan))


def _common(case: Case, printer: Printer, body: Body) -> dict[str, object]:
    return {
        "index": printer.index,
        "row_index": printer.row_index,
        "columns": case.nest.columns,
        "width": case.nest.kept[-1],
        "row_decode": printer.row_decode(),
        "before": body.before,
        "before_stores": body.before_stores,
    }


def _grid(case: Case) -> str:
    width = case.nest.kept[-1]
    return f"ceil_div({width}, {{TX}} * {{VECTOR}}) * {case.nest.rows // width}"


def _shape(case: Case, tunables: Tunables) -> None:
    # Half a kilobyte side by side keeps a row of accesses in one page of memory.
    moved = max((p.dtype.itemsize_bytes for p in case.nest.streams()), default=4)
    best = max(32, 512 // (moved * case.along_columns.widths[0]))
    tunables.add("TX", first(best, _widths(case))).add("VECTOR", case.along_columns.widths)


def _widths(case: Case) -> list[int]:
    """Threads side by side."""
    vectors = -(-case.nest.kept[-1] // case.along_columns.widths[0])
    widths = [n for n in powers(1, 256) if n < 2 * vectors and (n >= 8 or n >= vectors)]
    return widths or [1]


def _limits(case: Case, tunables: Tunables) -> None:
    tunables.require("{TX} * {TY} <= 1024").require("{TX} * {TY} >= 32")
    most = _part_bytes(case)
    if most:
        # What the threads above each other exchange lies in static shared memory.
        tunables.require(f"{{TX}} * {{TY}} * {{VECTOR}} * {most} <= {_STATIC_SHARED}")


def _part_bytes(case: Case) -> int:
    """What one thread gives to those above it."""
    return max((code.part_bytes for code in _codes(case)), default=0)


def _meets(case: Case, height: int) -> bool:
    """Whether some block of that height is large enough, and its exchange fits."""
    threads = [height * width for width in _widths(case) if 32 <= height * width <= 1024]
    return bool(threads) and min(threads) * _part_bytes(case) <= _STATIC_SHARED


def _codes(case: Case) -> tuple[PassCode, ...]:
    return Body(Printer(case.nest, case.along_columns), case.schedule, "x").passes()


def _words(case: Case) -> int:
    return max(1, sum((k.bytes_each + 3) // 4 for k in case.keeps(case.along_columns)))


def _heights(case: Case) -> list[int]:
    fits = [n for n in powers(1, 32) if n < 2 * case.nest.columns and _meets(case, n)]
    return first(8, fits) if fits else []


def _register_heights(case: Case) -> list[int]:
    """Threads above each other that can hold a row in registers, one wide vector each."""
    columns, words = case.nest.columns, _words(case)
    widest = case.along_columns.widths[0]
    fits = [n for n in powers(1, 64) if -(-columns // n) * words <= LANE_WORDS and n <= columns]
    fits = [n for n in fits if _meets(case, n)]
    wide = [n for n in fits if -(-columns // n) * words * widest <= LANE_WORDS]
    one_pass = len(case.schedule.passes) < 2
    if not fits or not case.schedule.passes or (one_pass and columns > _ALL_AT_ONCE):
        return []
    return first(wide[0] if wide else fits[-1], fits)


def _splits(case: Case) -> list[int]:
    tiles = max(1, case.nest.rows // (32 * case.along_columns.widths[0]))
    most = max(1, case.nest.columns // 16)
    wanted = [case.multiprocessors * waves // tiles for waves in (8, 4, 16, 2, 32)]
    return list(dict.fromkeys(max(1, min(most, n)) for n in wanted))


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
