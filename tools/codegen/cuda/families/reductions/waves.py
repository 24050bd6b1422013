"""The strategy that reads rows twice but from memory once: the second read comes out of L2.

One launch hands out tiles of the reducing and of the writing pass in an order that keeps the two
a wave of rows apart, so that what a wave read is still in the cache when it is written.
"""

from kernelwright.tools.codegen.cuda.families.row_shapes import narrowed, row_family
from kernelwright.tools.codegen.cuda.printing.case import Case
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
from kernelwright.tools.codegen.ir import Emitted, Strategy

WAVES = "wave_rows"
NAMES = (WAVES,)
_TITLE = "Rows in waves, the second read out of L2"
_SMALLEST_ROW_BYTES = 64 * 1024
# The share of bandwidth on one H200, and what accesses of 4 bytes left of it.
_EFFICIENCY, _NARROW = 0.71, 0.53


def strategies(case: Case) -> list[Strategy]:
    """Waves, where one reduction pass is followed by one that writes the row."""
    # Two waves of at least one row each must leave the cache room for what is written, and what
    # rows share must not push them out.
    too_long = 2 * _read_bytes(case) > 1.6 * case.cache_bytes
    if not reduces_then_writes(case) or too_long or case.shares_columns:
        return []
    return [
        Strategy(
            name=WAVES,
            title=_TITLE,
            mechanism="Resident blocks take tiles in an order that reduces one wave of rows "
            "while it writes the wave before; partials pass through memory.",
            reason="A row too long to stay on chip is still in L2 when it is read again, so "
            "memory sees one read and one write, and no block idles at a row's end.",
            category="memory",
            metric="L2 hit rate",
            memory="second read from L2",
            compute="2 passes",
            parallel="resident blocks, tickets",
            bytes_read_factor=1.1,
            efficiency=round(_EFFICIENCY * narrowed(case, _NARROW), 3),
            launches=2,
        )
    ]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop in waves.

    Raises:
        ValueError: When it does not fit.
    """
    if not reduces_then_writes(case):
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest, vectors = case.nest, case.along_rows
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix)
    code, last = body.passes()
    tunables = Tunables(prefix).add("THREADS", (256, 512, 128, 1024))
    tunables.add("VECTOR", vectors.widths).add("UNROLL", (2, 4, 8)).add("TILES", _tiles(case))
    tunables.add("WAVE", _rows_of_wave(case)).add("BLOCKS", (4, 2, 6, 8))
    tunables.add("LOADS", (1, 0)).add("STORES", (1, 0))
    tunables.require(f"{{THREADS}} * {{BLOCKS}} <= {case.hardware.threads_per_sm or 1024}")
    source = render(
        "waves",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        code=code,
        last=last,
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        before=body.before,
        before_stores=body.before_stores,
    )
    grid = tunables.named(f"min({nest.rows} * {{TILES}}, {case.multiprocessors} * {{BLOCKS}})")
    launch = Launch(f"{prefix}_waves", grid, tunables.named("{THREADS}"))
    arguments = [
        *buffer_arguments(nest),
        Argument("parts", "long long* parts", f"{prefix}_parts"),
        Argument("counters", "unsigned int* counters", f"{prefix}_counters"),
    ]
    text, plan = complete(source, arguments, [launch])
    words = tunables.named(f"ceil_div({nest.rows} * {{TILES}} * {code.part_bytes}, 8)")
    lines = (
        f'{prefix}_parts = empty(({words},), dtype="int64")',
        f'{prefix}_counters = zeros(({nest.rows + 1},), dtype="int32")',
    )
    return Emitted(source=text, plan=(*lines, *plan))


def reduces_then_writes(case: Case) -> bool:
    """Whether one pass reduces a long row and a second one writes along it, and no more."""
    passes = case.schedule.passes
    return (
        len(passes) == 2
        and bool(passes[0].reductions)
        and not (passes[1].reductions or passes[0].stores or passes[1].row_stores)
        and _read_bytes(case) >= _SMALLEST_ROW_BYTES
    )


def _read_bytes(case: Case) -> int:
    """What the reducing pass reads of one row."""
    nest, first = case.nest, case.schedule.passes[0]
    places = [nest.places[stmt.name] for stmt in first.element if stmt.op == "load"]
    return nest.columns * sum(p.dtype.itemsize_bytes for p in places if any(p.inner))


def _tiles(case: Case) -> list[int]:
    """Tiles a row: 64 KiB each keeps a block's loads in flight and its barriers rare."""
    sizes = (64, 32, 128, 16)
    return [max(1, _read_bytes(case) // (size * 1024)) for size in sizes]


def _rows_of_wave(case: Case) -> list[int]:
    """Rows of a wave: enough tiles for every resident block, few enough to stay in the cache."""
    row = _read_bytes(case)
    budgets = [case.cache_bytes * share for share in (0.4, 0.25, 0.6, 0.15)]
    return [max(1, min(case.nest.rows, int(budget // row))) for budget in budgets]


WAVE_FAMILY = row_family(NAMES, strategies, emit)
