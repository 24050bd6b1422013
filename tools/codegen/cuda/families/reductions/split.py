"""Strategies that spread one row over many blocks, one kernel a pass."""

from dataclasses import replace

from kernelwright.tools.codegen.cuda.families.row_shapes import row_family
from kernelwright.tools.codegen.cuda.printing.case import Case
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

SPLIT = "split_rows"
TILES = "split_rows_tiles"
NAMES = (SPLIT, TILES)
_TITLES = {
    SPLIT: "Rows split over blocks, partials in memory",
    TILES: "Rows split over blocks to reduce them, written by small tiles",
}
_SMALLEST_SHARE_BYTES = 8 * 1024
_LARGE_SHARE_BYTES = 256 * 1024
# Of a copy's bandwidth over all passes, measured on one H200: 0.935 of a batch norm's and a
# Frobenius norm's where a block writes a large share, 0.99 and 1.02 where it writes a small tile.
_SHARED, _TILED = 0.93, 0.99
# Blocks of 256 threads that a multiprocessor runs together whatever registers they take.
_AT_ONCE = 4
# Where rows are many and short, shares of them leave little to a block.
_SHORT = 0.6


def strategies(case: Case) -> list[Strategy]:
    """Splitting, where rows are few or long enough to be split."""
    if not case.schedule.passes or max(_splits(case)) < 2 or _rows_suffice(case):
        return []
    passes, ends = len(case.schedule.passes), case.schedule.ends_in_reduction
    plain = Strategy(
        name=SPLIT,
        title=_TITLES[SPLIT],
        mechanism="Several blocks take a share of a row each and leave their partials in memory; "
        "a small kernel joins those of each row. Later passes run in reverse, so that they meet "
        "the L2's tail.",
        reason="Few or very long rows leave most multiprocessors idle when a block has a "
        "whole row; shares of rows fill the device whatever the shape.",
        category="parallelism",
        metric="achieved occupancy",
        memory="streamed" if passes == 1 else "read again per pass",
        compute=f"{passes} passes" if passes > 1 else "one pass",
        parallel="many blocks per row",
        bytes_read_factor=_reads(case, passes),
        efficiency=_SHARED if _long(case) else _SHORT,
        launches=passes + len(case.schedule.reducing),
    )
    return [plain] if ends or passes < 2 else [plain, _tiled(plain, case)]


def _tiled(plain: Strategy, case: Case) -> Strategy:
    return plain.model_copy(
        update={
            "name": TILES,
            "title": _TITLES[TILES],
            "mechanism": "Several blocks take a share of a row each and leave their partials in "
            "memory; a small kernel joins those of each row. The last pass has a block for every "
            "small tile, which reads, writes and ends; it runs in reverse to meet the L2's tail.",
            "reason": f"{plain.reason} Many small blocks that only stream keep more of the "
            "memory's bandwidth than blocks that walk over a share.",
            "metric": "dram throughput",
            "parallel": "many blocks per row, tile per block",
            "efficiency": _TILED if _long(case) else _SHORT,
        }
    )


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a split row loop.

    Raises:
        ValueError: When there is nothing to split.
    """
    passes, tiles = case.schedule.passes, name == TILES
    if not passes or (tiles and (len(passes) < 2 or case.schedule.ends_in_reduction)):
        raise ValueError(f"{case.loop.name}: {name} needs a pass over the row")
    nest = case.nest
    printer = Printer(nest, case.along_rows)
    body = Body(printer, case.schedule, prefix)
    kernels = kernels_of(body, prefix)
    tunables = _tunables(case, prefix, tiles=tiles)
    source = render(
        "split",
        title=_TITLES[name],
        prefix=tunables.prefix,
        tunables=tunables.text(),
        kernels=kernels,
        tiles=tiles,
        rows_fastest=case.shares_columns,
        passes=body.passes(),
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        before=body.before,
        before_stores=body.before_stores,
    )
    splits, threads = tunables.named("{SPLITS}"), tunables.named("{THREADS}")
    launches = [
        Launch(kernel.name, str(nest.rows) if kernel.joins else f"{nest.rows} * {splits}", threads)
        for kernel in kernels
    ]
    if tiles:
        tile = tunables.named("{THREADS} * {VECTOR} * {DEPTH}")
        rows = str(nest.rows)
        if case.shares_columns:
            rows = tunables.named(f"ceil_div({nest.rows}, {{ROWS}})")
        grid = f"{rows} * ceil_div({nest.columns}, {tile})"
        launches[-1] = replace(launches[-1], grid=grid)
    arguments = [*buffer_arguments(nest), *partial_arguments(kernels, prefix)]
    text, plan = complete(source, arguments, launches)
    lines = allocations(kernels, prefix, nest.rows, splits)
    return Emitted(source=text, plan=(*lines, *plan))


def _tunables(case: Case, prefix: str, *, tiles: bool) -> Tunables:
    tunables = Tunables(prefix).add("THREADS", (256, 512, 128, 1024))
    tunables.add("VECTOR", case.along_rows.widths).add("UNROLL", case.unrolls(case.along_rows))
    tunables.add("SPLITS", _splits(case))
    if tiles:
        tunables.add("DEPTH", (1, 2, 4))
        if case.shares_columns:
            tunables.add("ROWS", [n for n in (4, 2, 8, 1) if n <= case.nest.rows])
    return tunables.add("LOADS", (0, 1)).add("STORES", (1, 0))


def _long(case: Case) -> bool:
    return case.nest.rows < 2 * case.multiprocessors or case.read_bytes >= _LARGE_SHARE_BYTES


def _rows_suffice(case: Case) -> bool:
    """Whether rows are so many and so short that shares of them only add partials."""
    many = case.nest.rows >= 8 * case.multiprocessors
    return many and case.read_bytes < 8 * _SMALLEST_SHARE_BYTES


def _splits(case: Case) -> list[int]:
    """Blocks a row, none of them too small to be worth a block."""
    most = max(1, case.row_bytes // _SMALLEST_SHARE_BYTES)
    return list(dict.fromkeys(max(1, min(most, n)) for n in _wanted_splits(case)))


def _wanted_splits(case: Case) -> tuple[int, ...]:
    """Where rows read the same columns, all blocks at once and no more; else a few waves of them.

    A last wave that fills a part of the device takes as long as a full one.
    """
    rows, once = case.nest.rows, _AT_ONCE * case.multiprocessors
    if case.shares_columns and once >= 2 * rows:
        return (once // rows, once // 2 // rows, 2 * once // rows)
    # Where rows alone fill the device, a share is what a block works on for a few microseconds.
    base = max(8 * case.multiprocessors // rows, case.row_bytes // _LARGE_SHARE_BYTES, 2)
    return (base, base // 2, 2 * base, 4 * base, base // 4)


def _reads(case: Case, passes: int) -> float:
    moved = case.row_bytes * case.nest.rows
    if passes == 1 or moved < case.cache_bytes:
        return 1.0
    # The reversed order finds about the cache's share in L2, once for each pass after the first.
    saved = min(1.0, case.cache_bytes / moved)
    return round(1 + (passes - 1) * (1 - saved), 3)


SPLIT_FAMILY = row_family(NAMES, strategies, emit)
