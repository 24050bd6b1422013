"""The strategy that keeps rows of any practical length on chip across the whole device.

A row is cut into tiles; each block keeps a tile in shared memory and exchanges partials with the
others through memory, while the copy of its next tile is under way.
"""

from kernelwright.tools.codegen.cuda.families.row_shapes import narrowed, row_family
from kernelwright.tools.codegen.cuda.families.row_tunables import kept_bytes, offsets
from kernelwright.tools.codegen.cuda.families.waves import reduces_then_writes
from kernelwright.tools.codegen.cuda.printing.case import Case, first, powers
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
from kernelwright.tools.codegen.cuda.printing.schedule import Kept
from kernelwright.tools.codegen.ir import Emitted, Strategy

RELAY = "relay_rows"
NAMES = (RELAY,)
_TITLE = "Rows on chip across blocks, one read, copies ahead of time"
# The share of bandwidth on one H200, and what accesses of 4 bytes left of it.
_EFFICIENCY, _NARROW = 0.58, 0.78


def strategies(case: Case) -> list[Strategy]:
    """The relay, where one reduction pass is followed by one that writes the row."""
    if _tile_counts(case) == []:
        return []
    return [
        Strategy(
            name=RELAY,
            title=_TITLE,
            mechanism="Rows are cut into tiles that resident blocks take in order. A block keeps "
            "its tile in shared memory, publishes its partial, and starts the asynchronous copy "
            "of its next tile before it waits for the rest of the row.",
            reason="A long row is read from memory once, and loading, waiting and storing overlap "
            "although no block or cluster could hold the row.",
            category="memory",
            metric="dram bytes read",
            memory="tiles in shared memory, asynchronous copies",
            compute="2 passes",
            parallel="resident blocks, tickets",
            efficiency=round(_EFFICIENCY * narrowed(case, _NARROW), 3),
            launches=2,
        )
    ]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a relay.

    Raises:
        ValueError: When it does not fit.
    """
    counts = _tile_counts(case)
    if not counts:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest, vectors, keeps = case.nest, case.along_rows, _keeps(case)
    printer = Printer(nest, vectors)
    plain = Body(printer, case.schedule, prefix)
    kept = Body(printer, case.schedule, prefix, keeps, preloaded=True)
    code, names = plain.passes()[0], {f"raw_{one.stmt.name}" for one in keeps}
    tunables = Tunables(prefix).add("THREADS", (512, 256, 1024, 128))
    tunables.add("VECTOR", _widths(case)).add("UNROLL", (4, 2, 1)).add("TILES", counts)
    tunables.add("BLOCKS", (2, 1, 3, 4)).add("LOADS", (1, 0)).add("STORES", (1, 0))
    shared = _shared_text(case)
    tunables.require(f"{shared} <= {case.shared_bytes}")
    tunables.require(f"{shared} * {{BLOCKS}} <= {_shared_of_multiprocessor(case)}")
    tunables.require(f"{{THREADS}} * {{BLOCKS}} <= {case.hardware.threads_per_sm or 1024}")
    source = render(
        "relay",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        code=code,
        reduce=kept.passes()[0],
        last=kept.passes()[1],
        fetched=[load for load in code.loads if load.raw in names],
        keeps=offsets(keeps),
        kept_bytes=kept_bytes(keeps),
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        before=plain.before,
        before_stores=plain.before_stores,
    )
    grid = tunables.named(f"min({nest.rows} * {{TILES}}, {case.multiprocessors} * {{BLOCKS}})")
    launch = Launch(f"{prefix}_relay", grid, tunables.named("{THREADS}"), tunables.named(shared))
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


def _keeps(case: Case) -> tuple[Kept, ...]:
    return case.keeps(case.along_rows, loads_only=True)


def _widths(case: Case) -> list[int]:
    """Vectors that an asynchronous copy can move: 4, 8 or 16 bytes for every kept load."""
    sizes = [one.bytes_each for one in _keeps(case)]
    return [
        width
        for width in case.along_rows.widths
        if all(width * size in (4, 8, 16) for size in sizes)
    ]


def _shared_of_multiprocessor(case: Case) -> int:
    return case.shared_bytes + 1024


def _shared_text(case: Case) -> str:
    """Shared memory of a block in bytes: two buffers of a tile."""
    step = "({TILES} * {THREADS} * {VECTOR})"
    items = f"(({case.nest.columns} + {step} - 1) // {step})"
    return f"2 * {items} * {{THREADS}} * {{VECTOR}} * {kept_bytes(_keeps(case))}"


def _tile_counts(case: Case) -> list[int]:
    """Tiles a row: two must fit in a block, and half the device's blocks must hold a row."""
    if not reduces_then_writes(case) or not _keeps(case) or not _widths(case):
        return []
    row = case.nest.columns * kept_bytes(_keeps(case))
    least = max(1, -(-2 * row // case.shared_bytes))
    most = case.multiprocessors
    if least > most:
        return []
    even = sorted([*powers(2, most), *(3 * n for n in powers(1, most // 3))])
    counts = [n for n in even if least <= n] or [min(most, least + least // 8)]
    # Tiles of about 48 KiB let two blocks share a multiprocessor.
    return first(max(least, row // (48 * 1024)), counts)


RELAY_FAMILY = row_family(NAMES, strategies, emit)
