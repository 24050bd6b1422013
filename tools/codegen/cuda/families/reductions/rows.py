"""Strategies that give each row to a group of threads (a warp, block or cluster) or to one thread.

With a group, the row is read once and stays in registers or shared memory, or, where it does not
fit, is read again for every pass. The family that fits every loop has a thread walk each row, in
order: for scans that depend on each other, and the last resort where rows lie across few others.

What to expect of a strategy before it is measured on this task: the shares of bandwidth were
measured on one H200 (benchmarks/results/h200/strategies.jsonl); the ledger corrects them as soon as
a search has measured something of their kind.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.families.reductions.row_tunables import (
    offsets,
    shared_text,
    streaming_clusters,
    tunables_of,
    vectors_of_rows,
)
from kernelwright.tools.codegen.cuda.families.reductions.scans import stands_alone
from kernelwright.tools.codegen.cuda.families.row_shapes import (
    BLOCK_REGISTERS,
    BLOCK_SHARED,
    BLOCK_STREAM,
    CLUSTER_REGISTERS,
    CLUSTER_STREAM,
    FEWER_PASSES,
    LONG_ROW_BYTES,
    NAMES,
    SERIAL,
    SHAPES,
    WARP,
    narrowed,
    row_family,
    under_way,
)
from kernelwright.tools.codegen.cuda.families.window_walks import Held
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.kernels import Body
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.vectors import PEELED, row_start
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily


def strategy(case: Case, name: str) -> Strategy:
    """The strategy of that name, with the traffic and efficiency to expect of it here."""
    shape = SHAPES[name]
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
        return 3 / streaming_clusters(case)[0]
    return 1.0 if case.read_bytes > LONG_ROW_BYTES else 2.0


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
    CLUSTER_STREAM: 0.85,
}
# What is left of them where a row is walked in accesses of 4 bytes (rows of 65535 floats on one
# H200): a walk again and again has few bytes under way, while registers take all of a row at once.
_NARROW = {
    BLOCK_STREAM: 0.66,
    CLUSTER_STREAM: 0.74,
    CLUSTER_REGISTERS: 0.97,
}


def _efficiency(case: Case, name: str) -> float:
    """The share of bandwidth to expect: rows must fill the device, and stay small on chip."""
    shape, columns = SHAPES[name], case.nest.columns
    width = {"warp": 1 / 8, "block": 1.0, "cluster": 16.0 if shape.keep == "none" else 8.0}
    filled = min(1.0, case.nest.rows * width[shape.group] / (2 * case.multiprocessors))
    if name == SERIAL:
        # Neighbouring threads read far from each other; the caches make up for part of it.
        return round(0.3 * min(1.0, max(0.01, case.nest.rows / (512 * case.multiprocessors))), 4)
    base = _BASE[name]
    if shape.group == "warp" and columns > 1024:
        base -= 0.1
    if name == BLOCK_REGISTERS and columns * case.row_words > 8192:
        # Few rows fit a multiprocessor, so loading and computing take turns.
        base -= 0.04 if columns * case.row_words <= 16384 else 0.12
    base -= 0.01 * len(case.schedule.passes)
    vectors = vectors_of_rows(case, name)
    if len(case.schedule.passes) > 1:
        base *= narrowed(case, _NARROW.get(name, 1.0), vectors)
    if vectors is not case.along_rows and vectors.widths[0] > 1:
        base *= PEELED
    if shape.group == "block":
        base *= _in_blocks(case, name)
    return round(max(base * max(filled, 0.02), 0.002), 4)


def _in_blocks(case: Case, name: str) -> float:
    """The share of bandwidth that is left where a row is too little for a block of its own."""
    tunables = tunables_of(case, name, "x")
    row_bytes = sum(case.moved_bytes) / max(1, case.nest.rows)
    return under_way(case, tunables.best("THREADS") if tunables else 1, row_bytes)


def strategies(case: Case) -> list[Strategy]:
    """The ways to give a row to a group of threads that fit this loop and device."""
    return [strategy(case, name) for name in NAMES if tunables_of(case, name, "x") is not None]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a row loop.

    Raises:
        ValueError: When the strategy does not fit.
    """
    tunables = tunables_of(case, name, prefix)
    if tunables is None:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    shape, nest, vectors = SHAPES[name], case.nest, vectors_of_rows(case, name)
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
        # Where rows are peeled, how far the row's start lies from a multiple of 16 bytes.
        start="" if vectors is case.along_rows else printer.base(row_start(nest, vectors)),
    )
    text, plan = complete(source, buffer_arguments(nest), [_launch(case, name, prefix, tunables)])
    return Emitted(source=text, plan=plan)


def _launch(case: Case, name: str, prefix: str, tunables: Tunables) -> Launch:
    shape, rows = SHAPES[name], case.nest.rows
    grid, cluster = str(rows), ""
    if shape.group == "warp":
        grid = f"ceil_div({rows}, {{THREADS}} // {{LANES}})"
    if shape.group == "cluster":
        grid, cluster = f"{rows} * {{CLUSTER}}", "{CLUSTER}"
    shared = shared_text(case) if shape.keep == "shared" else ""
    named = tunables.named
    return Launch(f"{prefix}_rows", named(grid), named("{THREADS}"), named(shared), named(cluster))


def _held(case: Case, name: str) -> Held:
    """What a strategy keeps of a row, and how much of it a thread has at a time."""
    tunables, shape = tunables_of(case, name, "x"), SHAPES[name]
    if tunables is None or shape.group == "warp":
        return Held(case.keeps(case.along_rows))
    threads, cluster, vector = (tunables.best(word) for word in ("THREADS", "CLUSTER", "VECTOR"))
    step = threads * cluster * vector
    unrolled = tunables.best("UNROLL") * vector
    positions = -(-case.nest.columns // step) * vector if shape.keep == "registers" else unrolled
    kept = case.keeps(vectors_of_rows(case, name)) if shape.keep != "none" else ()
    return Held(kept, positions, threads, case.nest.rows * cluster)


ROW_FAMILY = row_family(NAMES, strategies, emit, _held)


def _fit(case: Case) -> Fit:
    tangled = not case.nest.pointwise and case.has_scan and not stands_alone(case)
    return Fit.GOOD if tangled else Fit.LAST_RESORT


def _strategies(case: Case) -> list[Strategy]:
    """The one way that fits every mix of scans and reductions."""
    return [strategy(case, SERIAL)]


SERIAL_FAMILY = LoopFamily((SERIAL,), _fit, _strategies, emit, FEWER_PASSES)
