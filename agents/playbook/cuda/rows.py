"""Strategies that give each row to a group of threads: in a warp, a block or a cluster.

The row is read once and stays in registers or shared memory, or, where it does not fit, is read
again for every pass.
"""

from dataclasses import dataclass

from agents.playbook.cuda.body import Body
from agents.playbook.cuda.case import (
    BLOCK_WORDS,
    KIB,
    LANE_WORDS,
    OTHER_WORDS,
    REGISTERS,
    ROW_WORDS,
    Case,
    first,
    powers,
)
from agents.playbook.cuda.printing import Printer
from agents.playbook.cuda.rendering import Launch, Tunables, buffer_arguments, complete, render
from agents.playbook.cuda.schedule import Kept
from agents.playbook.ir import Emitted, Strategy

WARP = "warp_rows"
BLOCK_REGISTERS = "block_rows_registers"
BLOCK_SHARED = "block_rows_shared"
BLOCK_STREAM = "block_rows_stream"
CLUSTER_REGISTERS = "cluster_rows_registers"
CLUSTER_SHARED = "cluster_rows_shared"
CLUSTER_STREAM = "cluster_rows_stream"
SERIAL = "thread_rows"
NAMES = (
    WARP,
    BLOCK_REGISTERS,
    BLOCK_SHARED,
    BLOCK_STREAM,
    CLUSTER_REGISTERS,
    CLUSTER_SHARED,
    CLUSTER_STREAM,
)

_MOST_THREADS = 1024
# Beyond this, the rows that resident blocks read no longer fit the cache together.
_LONG_ROW_BYTES = 128 * KIB


@dataclass(frozen=True)
class Shape:
    """Who shares a row and where it stays."""

    group: str
    keep: str
    title: str
    mechanism: str
    reason: str
    metric: str


_SHAPES = {
    SERIAL: Shape(
        "warp",
        "none",
        "A thread a row, in order",
        "Each thread walks its own row from end to end, with several loads in flight, carrying "
        "running values and reductions along.",
        "Running values that feed reductions or other running values are known in order only.",
        "achieved occupancy",
    ),
    WARP: Shape(
        "warp",
        "registers",
        "Several rows a block, each within one warp",
        "A few lanes hold a row in registers and reduce it by shuffles.",
        "A short row leaves a block idle and its barriers exposed; lanes of one warp need "
        "neither barriers nor shared memory.",
        "warp stall at barriers",
    ),
    BLOCK_REGISTERS: Shape(
        "block",
        "registers",
        "A block a row, the row in registers",
        "All loads of a row are issued at once; every later pass runs from registers.",
        "The row is read from memory once however many passes it needs, and nothing is faster "
        "than a register.",
        "dram bytes read",
    ),
    BLOCK_SHARED: Shape(
        "block",
        "shared",
        "A block a row, the row in shared memory",
        "The first pass leaves the row in shared memory; later passes read it there.",
        "Reads the row from memory once where it is too long for registers, or leaves "
        "registers to more resident blocks.",
        "dram bytes read",
    ),
    BLOCK_STREAM: Shape(
        "block",
        "none",
        "A block a row, read again for each pass",
        "A block walks over its row with several vectors in flight, once for each pass.",
        "Works for rows of any length; a second read that the L2 answers costs little.",
        "L2 hit rate",
    ),
    CLUSTER_REGISTERS: Shape(
        "cluster",
        "registers",
        "A cluster a row, the row in registers",
        "The blocks of a cluster hold a share of the row each in registers and exchange "
        "partials through distributed shared memory.",
        "A row too long for one block is still read from memory only once.",
        "dram bytes read",
    ),
    CLUSTER_SHARED: Shape(
        "cluster",
        "shared",
        "A cluster a row, the row in shared memory",
        "The blocks of a cluster keep a share of the row each in shared memory and exchange "
        "partials through distributed shared memory.",
        "A row too long for one block is still read from memory only once, and long rows fit.",
        "dram bytes read",
    ),
    CLUSTER_STREAM: Shape(
        "cluster",
        "none",
        "A cluster a row, read again for each pass",
        "The blocks of a cluster walk over one row together, and again, backwards, for each "
        "later pass; partials go through distributed shared memory.",
        "With a cluster a row few rows are under way at a time, so that the L2 still has them "
        "when they are read again.",
        "L2 hit rate",
    ),
}


def strategies(case: Case) -> list[Strategy]:
    """The ways to give a row to a group of threads that fit this loop and device."""
    return [_strategy(case, name) for name in NAMES if _tunables(case, name, "x") is not None]


def serial_strategies(case: Case) -> list[Strategy]:
    """The one way that fits every mix of scans and reductions."""
    return [_strategy(case, SERIAL)]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a row loop.

    Raises:
        ValueError: When the strategy does not fit.
    """
    tunables = _tunables(case, name, prefix)
    if tunables is None:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    shape, nest, vectors = _SHAPES[name], case.nest, case.along_rows
    keeps = case.keeps(vectors) if shape.keep != "none" else ()
    printer = Printer(nest, vectors)
    schedule = case.schedule_in_order if name == SERIAL else case.schedule
    body = Body(printer, schedule, prefix, keeps)
    source = render(
        "rows",
        title=shape.title,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        group=shape.group,
        keep=shape.keep,
        turns=shape.keep == "none" and name != SERIAL,
        keeps=offsets(keeps),
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        before=body.before,
        before_stores=body.before_stores,
        passes=body.passes(),
    )
    text, plan = complete(source, buffer_arguments(nest), [_launch(case, name, prefix, tunables)])
    return Emitted(source=text, plan=plan)


@dataclass(frozen=True)
class Placed:
    """A kept value and the bytes an element that lie before it in shared memory."""

    stmt: object
    type: str
    before: int


def offsets(keeps: tuple[Kept, ...]) -> tuple[Placed, ...]:
    """Kept values with their places in shared memory, the widest first so that all are aligned."""
    placed, before = [], 0
    for one in sorted(keeps, key=lambda kept: -kept.bytes_each):
        placed.append(Placed(one.stmt, one.type, before))
        before += one.bytes_each
    return tuple(placed)


def kept_bytes(keeps: tuple[Kept, ...]) -> int:
    """Bytes an element that are kept."""
    return sum(one.bytes_each for one in keeps)


def _tunables(case: Case, name: str, prefix: str) -> Tunables | None:
    """The tunables of a strategy; None when it does not fit."""
    shape = _SHAPES[name]
    if shape.group == "cluster" and not (case.cluster_sizes and case.keeps(case.along_rows)):
        return None
    if name == SERIAL:
        tunables = Tunables(prefix).add("THREADS", (64, 32, 128, 256)).add("LANES", (1,))
        tunables.add("VECTOR", case.along_rows.widths).add("UNROLL", (8, 4, 16))
        return _hints(tunables, again=False)
    if shape.group == "warp":
        return _warp_tunables(case, prefix)
    if shape.keep == "registers":
        return _register_tunables(case, shape, prefix)
    if shape.keep == "shared":
        return _shared_tunables(case, shape, prefix)
    return _stream_tunables(case, shape, prefix)


def _stream_tunables(case: Case, shape: Shape, prefix: str) -> Tunables | None:
    tunables, again = Tunables(prefix), len(case.schedule.passes) > 1
    if shape.group == "cluster":
        sizes = _streaming_clusters(case)
        if not sizes:
            return None
        # Few threads with many loads each: three such blocks share a multiprocessor.
        tunables.add("THREADS", (256, 512, 128, 1024)).add("CLUSTER", sizes)
        tunables.add("VECTOR", case.along_rows.widths).add("UNROLL", (8, 4, 2))
        return _hints(tunables, again=again)
    if _hopeless(case):
        return None
    sizes = _block_sizes(case, 1)
    if case.read_bytes > _LONG_ROW_BYTES:
        # One row at a time on each multiprocessor: the fewer there are, the more stay in the L2.
        sizes = first(_MOST_THREADS, sizes)
    tunables.add("THREADS", sizes).add("VECTOR", case.along_rows.widths)
    return _hints(tunables.add("UNROLL", (4, 2, 8, 1)), again=again)


def _hopeless(case: Case) -> bool:
    """Whether a block a row leaves most of the device idle for long."""
    return 8 * case.nest.rows < case.multiprocessors and case.read_bytes > _LONG_ROW_BYTES


def _streaming_clusters(case: Case) -> list[int]:
    """Cluster sizes for rows that as many blocks as fit would push out of the L2."""
    row = case.read_bytes
    sizes = [n for n in case.cluster_sizes if 16 * KIB * n <= row]
    if row <= _LONG_ROW_BYTES or len(case.schedule.passes) < 2 or not sizes:
        return []
    # Eight is what every device with clusters can place well; more only for the longest shares.
    return first(16 if row > 8 * _LONG_ROW_BYTES else 8 if row >= 2 * _LONG_ROW_BYTES else 4, sizes)


def _warp_tunables(case: Case, prefix: str) -> Tunables | None:
    columns, widths = case.nest.columns, case.along_rows.widths
    vectors = max(1, columns // widths[0])
    lanes = [n for n in powers(1, 32) if columns * case.row_words <= n * LANE_WORDS]
    if not lanes:
        return None
    tunables = Tunables(prefix).add("THREADS", (128, 256, 64, 512))
    tunables.add("LANES", first(min(32, vectors // 2 or 1), lanes)).add("VECTOR", widths)
    return _hints(tunables, again=False)


def _register_tunables(case: Case, shape: Shape, prefix: str) -> Tunables | None:
    columns, words = case.nest.columns, case.row_words
    clusters = case.cluster_sizes if shape.group == "cluster" else (1,)
    share = -(-columns * words // max(clusters))
    if share > BLOCK_WORDS or (shape.group == "cluster" and columns < 8192):
        return None
    least = share // ROW_WORDS
    # A block holds 32 words of a row a thread, so that several rows share a multiprocessor and
    # one loads while another computes; in a cluster 64, as fewer threads meet at its barrier.
    each = 16 if shape.group == "cluster" else 8
    tunables = Tunables(prefix).add("THREADS", _block_sizes(case, least, clusters[0], each))
    tunables.add("VECTOR", case.along_rows.widths)
    group = "{THREADS}"
    if shape.group == "cluster":
        tunables.add("CLUSTER", clusters)
        group = "{THREADS} * {CLUSTER}"
    # Whole vectors a thread, so the last, partial one counts as full. A block's threads share
    # its registers, and each needs a few for everything else.
    step = f"({group} * {{VECTOR}})"
    held = f"({columns} + {step} - 1) // {step} * {{VECTOR}} * {words}"
    tunables.require(f"{held} <= min({ROW_WORDS}, {REGISTERS} // {{THREADS}} - {OTHER_WORDS})")
    return _hints(tunables, again=False)


def _shared_tunables(case: Case, shape: Shape, prefix: str) -> Tunables | None:
    keeps = case.keeps(case.along_rows)
    clusters = case.cluster_sizes if shape.group == "cluster" else (1,)
    row = case.nest.columns * kept_bytes(keeps)
    if not keeps or row > case.shared_bytes * max(clusters):
        return None
    if shape.group == "cluster" and case.nest.columns < 8192:
        return None
    tunables = Tunables(prefix).add("THREADS", _block_sizes(case, 1, max(clusters)))
    tunables.add("VECTOR", case.along_rows.widths)
    if shape.group == "cluster":
        tunables.add("CLUSTER", clusters)
    tunables.add("UNROLL", (4, 2, 8, 1))
    tunables.require(f"{_shared_text(case, shape)} <= {case.shared_bytes}")
    return _hints(tunables, again=False)


def _hints(tunables: Tunables, *, again: bool) -> Tunables:
    """Cache hints: marking a read first to evict pays only for the second read of a row."""
    return tunables.add("LOADS", (1, 0) if again else (0, 1)).add("STORES", (1, 0))


def _block_sizes(case: Case, least: int, blocks: int = 1, each: int = 4) -> list[int]:
    """Threads a block: about `each` vectors a thread, never more than the row has vectors."""
    vectors = max(32, case.nest.columns // case.along_rows.widths[0] // blocks)
    sizes = [n for n in powers(32, _MOST_THREADS) if least <= n <= 2 * vectors]
    return first(min(512, max(32, vectors // each)), sizes or [_MOST_THREADS])


def _shared_text(case: Case, shape: Shape) -> str:
    """Shared memory of a block in bytes, over tunables in braces."""
    share = "{THREADS} * {CLUSTER}" if shape.group == "cluster" else "{THREADS}"
    each = kept_bytes(case.keeps(case.along_rows))
    step = f"({share} * {{VECTOR}})"
    return f"({case.nest.columns} + {step} - 1) // {step} * {{THREADS}} * {{VECTOR}} * {each}"


def _launch(case: Case, name: str, prefix: str, tunables: Tunables) -> Launch:
    shape, rows = _SHAPES[name], case.nest.rows
    grid, cluster = str(rows), ""
    if shape.group == "warp":
        grid = f"ceil_div({rows}, {{THREADS}} // {{LANES}})"
    if shape.group == "cluster":
        grid, cluster = f"{rows} * {{CLUSTER}}", "{CLUSTER}"
    shared = _shared_text(case, shape) if shape.keep == "shared" else ""
    named = tunables.named
    return Launch(f"{prefix}_rows", named(grid), named("{THREADS}"), named(shared), named(cluster))


def _strategy(case: Case, name: str) -> Strategy:
    shape = _SHAPES[name]
    schedule = case.schedule_in_order if name == SERIAL else case.schedule
    passes = max(1, len(schedule.passes))
    read_again = shape.keep == "none" and passes > 1
    return Strategy(
        name=name,
        title=shape.title,
        mechanism=shape.mechanism,
        reason=shape.reason,
        category="parallelism" if shape.group == "warp" else "memory",
        metric=shape.metric,
        memory={"none": "streamed"}.get(shape.keep, f"row in {shape.keep}"),
        compute=f"{passes} passes" if passes > 1 else "one pass",
        parallel=f"{shape.group} per row",
        bytes_read_factor=_reads(case, passes, _under_way(case, name)) if read_again else 1.0,
        efficiency=_efficiency(case, name),
    )


def _under_way(case: Case, name: str) -> float:
    """Rows that one multiprocessor works on at a time."""
    if name == CLUSTER_STREAM:
        return 3 / _streaming_clusters(case)[0]
    return 1.0 if case.read_bytes > _LONG_ROW_BYTES else 2.0


def _reads(case: Case, passes: int, blocks: float) -> float:
    """How often the row comes from memory: again for each pass, unless the L2 still has it."""
    # A block a row: about one long row or two short ones are under way on a multiprocessor. In
    # clusters, three blocks of each multiprocessor share rows.
    resident = case.read_bytes * min(case.nest.rows, case.multiprocessors * blocks)
    # The backward walk meets what is left even of rows that do not fit together.
    kept = min(1.0, 1.25 * case.cache_bytes / max(1.0, resident))
    return round(1 + (passes - 1) * (1 - kept), 3)


# The shares of bandwidth that were measured on large problems, where nothing else limits.
_BASE = {
    WARP: 0.96,
    BLOCK_REGISTERS: 0.99,
    BLOCK_SHARED: 0.9,
    BLOCK_STREAM: 0.97,
    # A whole row waits at the cluster's barrier; the exchange costs a few microseconds.
    CLUSTER_REGISTERS: 0.75,
    CLUSTER_SHARED: 0.68,
    CLUSTER_STREAM: 0.85,
}


def _efficiency(case: Case, name: str) -> float:
    """The share of bandwidth to expect: rows must fill the device, and stay small on chip."""
    shape, columns = _SHAPES[name], case.nest.columns
    width = {"warp": 1 / 8, "block": 1.0, "cluster": 16.0 if shape.keep == "none" else 8.0}
    filled = min(1.0, case.nest.rows * width[shape.group] / (2 * case.multiprocessors))
    if name == SERIAL:
        # Neighbouring threads read far from each other; the caches make up for part of it.
        return round(0.3 * min(1.0, max(0.01, case.nest.rows / (512 * case.multiprocessors))), 4)
    base = _BASE[name]
    if shape.group == "warp" and columns > 1024:
        base -= 0.1
    if shape.group == "block" and columns < 512:
        base -= 0.2
    if name == BLOCK_REGISTERS and columns * case.row_words > 8192:
        # Few rows fit a multiprocessor, so loading and computing take turns.
        base -= 0.04 if columns * case.row_words <= 16384 else 0.12
    base -= 0.01 * len(case.schedule.passes)
    return round(base * max(filled, 0.02), 3)
