"""Columns whose walk is cut over blocks: few rows leave most multiprocessors idle.

As many blocks as run at once take a share each, so that none is left for a last wave that fills a
part of the device; they are large, as what each leaves has to be joined.
"""

from kernelwright.tools.codegen.cuda.families.column_shape import (
    STATIC_SHARED,
    common,
    declare,
    grid,
    heights,
    limit,
    part_bytes,
    side_by_side,
)
from kernelwright.tools.codegen.cuda.printing.body import Body
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.kernels import (
    allocations,
    kernels_of,
    partial_arguments,
)
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.rendering import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted

# Threads of a block; and of a multiprocessor, by the values that each has under way: they leave it
# 64, 80 or 128 registers (moments of a vector, four times read ahead, spilled with 64).
_THREADS = 256
_AT_ONCE = ((24, 1024), (40, 768))
_LEAST_AT_ONCE = 512


def fits(case: Case) -> bool:
    """Whether there is a walk to cut."""
    return bool(case.schedule.passes) and bool(heights(case)) and max(_splits(case)) > 1


def emit(case: Case, prefix: str, title: str) -> Emitted:
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
        at_once=f"{fitting} > 0 ? {fitting} : 1",
        **common(case, printer, body),
    )
    tiles = tunables.named(grid(case))
    joining = f"ceil_div({nest.rows} * 32, {threads})"  # a warp a row
    launches = [
        Launch(kernel.name, joining if kernel.joins else f"{tiles} * {splits}", threads)
        for kernel in kernels
    ]
    arguments = [*buffer_arguments(nest), *partial_arguments(kernels, prefix)]
    text, plan = complete(source, arguments, launches)
    lines = allocations(kernels, prefix, nest.rows, splits)
    return Emitted(source=text, plan=(*lines, *plan))


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
