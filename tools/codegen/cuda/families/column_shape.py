"""What strategies with threads along the rows have in common: the block's two sides."""

from kernelwright.tools.codegen.cuda.printing.body import Body
from kernelwright.tools.codegen.cuda.printing.case import Case, first, powers
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.rendering import Tunables

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
