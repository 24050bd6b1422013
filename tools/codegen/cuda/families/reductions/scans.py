"""Strategies for running sums, products and extrema, with what comes before and after fused in."""

from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.families.row_shapes import FEWER_PASSES
from kernelwright.tools.codegen.cuda.printing.case import Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
    value_type,
)
from kernelwright.tools.codegen.cuda.printing.kernels import Body, Load, VectorStore
from kernelwright.tools.codegen.cuda.printing.printing import Printer, Stream
from kernelwright.tools.codegen.cuda.printing.schedule import Pass, Schedule, Scheduler
from kernelwright.tools.codegen.ir import Emitted, Stmt, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily

WARP = "scan_warp_rows"
BLOCK = "scan_block_rows"
SPLIT = "scan_split_rows"
COLUMNS = "scan_columns"
COLUMNS_SPLIT = "scan_columns_split"
NAMES = (WARP, BLOCK, SPLIT, COLUMNS, COLUMNS_SPLIT)

_TITLES = {
    WARP: "Several rows a block, each scanned within one warp",
    BLOCK: "A block a row, scanned batch by batch",
    SPLIT: "Rows split over blocks, totals first",
    COLUMNS: "A thread carries its own columns along",
    COLUMNS_SPLIT: "Columns split over blocks, totals first",
}
_MECHANISMS = {
    WARP: "Lanes scan a short row with shuffles; no barrier is needed.",
    BLOCK: "A block scans a batch of its row with shuffles and one exchange between warps, and "
    "carries the total on; several loads are in flight.",
    SPLIT: "A first kernel adds up each share of a row, a second one scans its share from what "
    "came before it.",
    COLUMNS: "Lanes take neighbouring rows; each thread walks along the scanned axis with several "
    "loads in flight and needs nobody.",
    COLUMNS_SPLIT: "A first kernel adds up each share of the scanned axis, a second one scans its "
    "share from what came before it.",
}


@dataclass(frozen=True)
class Take:
    """A scan: its array of a batch, operator and carry."""

    name: str
    array: str
    type: str
    value: str
    op: str


@dataclass(frozen=True)
class ScanCode:
    """A scan loop as text: what is collected before the scan, and what is emitted after it."""

    decode: tuple[str, ...]
    loads: tuple[Load, ...]
    takes: tuple[Take, ...]
    collect: tuple[str, ...]
    emit: tuple[str, ...]
    stores: tuple[VectorStore, ...]
    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class ScanKernel:
    """A kernel of a scan; one that leaves only totals, or the one that writes."""

    name: str
    only_totals: bool
    parameters: str = "@parameters@"


def strategies(case: Case) -> list[Strategy]:
    """The scans that fit."""
    if not case.contiguous_rows and case.nest.kept:
        tiles = case.nest.rows / (32 * case.multiprocessors)
        filled = max(0.02, min(1.0, tiles / 16))
        return sorted(
            [_strategy(COLUMNS, 1.0, 0.8 * filled, 1), _strategy(COLUMNS_SPLIT, 2.0, 0.8, 2)],
            key=lambda one: one.bytes_read_factor / one.efficiency,
        )
    filled = max(0.02, min(1.0, case.nest.rows / (4 * case.multiprocessors)))
    found = [_strategy(BLOCK, 1.0, 0.8 * filled * (1.0 if case.nest.columns > 512 else 0.5), 1)]
    if case.nest.columns <= 2048:
        found.append(_strategy(WARP, 1.0, 0.82 * filled, 1))
    if case.nest.rows < 4 * case.multiprocessors and case.nest.columns > 8192:
        small = case.row_bytes * case.nest.rows < case.cache_bytes
        found.append(_strategy(SPLIT, 1.2 if small else 2.0, 0.85, 2))
    return sorted(found, key=lambda one: one.bytes_read_factor / one.efficiency)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a scan loop.

    Raises:
        ValueError: When the loop or the strategy does not fit.
    """
    if not stands_alone(case):
        raise ValueError(f"{case.loop.name}: {name} neither reduces nor scans a scan")
    columns = name in (COLUMNS, COLUMNS_SPLIT)
    split = name in (SPLIT, COLUMNS_SPLIT)
    nest = case.nest
    if columns and not nest.kept:
        raise ValueError(f"{case.loop.name}: {name} needs rows to lie along")
    printer = Printer(nest, case.along_columns if columns else case.along_rows)
    code = _code(case, printer, prefix)
    tunables = _tunables(case, name, prefix)
    kernels = [ScanKernel(f"{prefix}_totals", True)] if split else []
    kernels.append(ScanKernel(f"{prefix}_scan", False))
    body = Body(printer, _schedule(case), prefix)
    source = render(
        "scan_columns" if columns else "scan_rows",
        title=_TITLES[name],
        prefix=tunables.prefix,
        tunables=tunables.text(),
        kernels=kernels,
        code=code,
        group="warp" if name == WARP else "block",
        split=split,
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        width=nest.kept[-1] if nest.kept else 1,
        row_decode=printer.row_decode(),
        before=body.before,
        before_stores=body.before_stores,
    )
    launches = [_launch(case, name, kernel.name, tunables) for kernel in kernels]
    totals = [
        Argument(f"totals_{take.name}", f"long long* totals_{take.name}", f"{prefix}_{take.name}")
        for take in code.takes
    ]
    text, plan = complete(source, [*buffer_arguments(nest), *totals], launches)
    words = tunables.named(f"{nest.rows} * {{SPLITS}}")
    lines = [f'{one.passed} = empty(({words},), dtype="int64")' for one in totals if split]
    return Emitted(source=text, plan=(*lines, *plan))


def stands_alone(case: Case) -> bool:
    """Whether the loop's scans depend on no other scan, and nothing is reduced beside them."""
    scanned: set[str] = set()
    for stmt in case.loop.body:
        behind = set(stmt.args) & scanned
        if stmt.op == "reduce" or (stmt.op == "scan" and behind):
            return False
        if stmt.op == "scan" or behind:
            scanned.add(stmt.name)
    return True


def _schedule(case: Case) -> Schedule:
    """Everything at row level; the element level is the scan's own."""
    return Schedule(Scheduler(case.nest).row_statements(), _row_stores(case), ())


def _row_stores(case: Case) -> tuple[int, ...]:
    stores = range(len(case.nest.targets))
    return tuple(at for at in stores if not case.nest.is_element_store(at))


def _code(case: Case, printer: Printer, prefix: str) -> ScanCode:
    nest = case.nest
    scheduler = Scheduler(nest)
    scans = [stmt for stmt in nest.loop.body if stmt.op == "scan"]
    stores = tuple(at for at in range(len(nest.targets)) if nest.is_element_store(at))
    inputs = scheduler.element_closure(stmt.args[0] for stmt in scans)
    outputs = scheduler.element_closure(
        (
            name
            for at in stores
            for name in (nest.loop.stores[at].value, *(n for n, _ in nest.targets[at].gathers))
        ),
        scanned=True,
    )
    # One pass as the body knows it: every load, and every store.
    names = {stmt.name for stmt in (*inputs, *outputs)}
    every = tuple(s for s in nest.loop.body if s.name in names)
    whole = Pass(1, every, (), stores, (), ())
    body = Body(printer, Schedule((), (), (whole,)), prefix)
    both = body.pieces(whole, [stmt for stmt in every if stmt.op != "scan"])
    return ScanCode(
        decode=both.decode,
        loads=both.loads,
        takes=tuple(_take(stmt, printer) for stmt in scans if stmt.name in names),
        collect=tuple(body.element_lines(whole, inputs)),
        emit=tuple(_emitted_lines(body, whole, outputs)),
        stores=both.stores,
        streams=both.streams,
    )


def _emitted_lines(body: Body, whole: Pass, outputs: tuple[Stmt, ...]) -> list[str]:
    """What follows the scans; each scan's value is its element of the batch."""
    lines = []
    for stmt in outputs:
        if stmt.op == "scan":
            take = _take(stmt, body.printer)
            value = body.printer.running(stmt).result(f"{take.array}[u * VECTOR + k]")
            lines.append(f"const {value_type(stmt.dtype)} v_{stmt.name} = {value};")
        else:
            lines += body.element_lines(whole, (stmt,))
    return [*lines, *body.scattered_stores(whole)]


def _take(stmt: Stmt, printer: Printer) -> Take:
    running = printer.running(stmt)
    array = f"take_{stmt.name}"
    return Take(stmt.name, array, running.type, running.value, running.op)


def _tunables(case: Case, name: str, prefix: str) -> Tunables:
    columns = name in (COLUMNS, COLUMNS_SPLIT)
    vectors = case.along_columns if columns else case.along_rows
    tunables = Tunables(prefix)
    if columns:
        tunables.add("THREADS", (64, 128, 32, 256)).add("VECTOR", (1, *vectors.widths))
        tunables.add("UNROLL", (16, 8, 32, 4))
        tunables.require("{VECTOR} * {UNROLL} <= 64")
    elif name == WARP:
        lanes = max(1, case.nest.columns // vectors.widths[0])
        tunables.add("THREADS", (128, 256, 64)).add("VECTOR", vectors.widths)
        tunables.add("LANES", first(min(32, lanes), powers(1, 32))).add("UNROLL", (2, 1, 4))
    else:
        most = max(32, case.nest.columns // vectors.widths[0])
        sizes = [n for n in powers(32, 1024) if n < 2 * most]
        # Long rows want many threads: fewer turns of the walk wait for the running sum (2.12 ms
        # with 1024 on rows of 32768, 2.27 with 256, an H200).
        best = 1024 if name == BLOCK and most >= 8192 else 256
        tunables.add("THREADS", first(best, sizes)).add("VECTOR", vectors.widths)
        tunables.add("UNROLL", (4, 2, 8, 1))
    if name == SPLIT:
        wanted = [case.multiprocessors * waves // case.nest.rows for waves in (4, 8, 2, 16)]
        most = max(2, case.nest.columns // 4096)
        tunables.add("SPLITS", [max(2, min(most, n)) for n in wanted])
    if name == COLUMNS_SPLIT:
        wanted = [case.multiprocessors * 64 * n // case.nest.rows for n in (16, 8, 4, 32)]
        most = max(1, case.nest.columns // 16)
        tunables.add("SPLITS", [max(1, min(most, n)) for n in wanted])
    # What is read first to evict took 2.15 ms where plain reads took 2.07 (long rows, an H200).
    return tunables.add("LOADS", (0, 1)).add("STORES", (1, 0))


def _launch(case: Case, name: str, kernel: str, tunables: Tunables) -> Launch:
    rows = case.nest.rows
    grid = str(rows)
    if name == WARP:
        grid = f"ceil_div({rows}, {{THREADS}} // {{LANES}})"
    if name == SPLIT:
        grid = f"{rows} * {{SPLITS}}"
    if name in (COLUMNS, COLUMNS_SPLIT):
        width = case.nest.kept[-1]
        grid = f"ceil_div({width}, {{THREADS}} * {{VECTOR}}) * {rows // width}"
        grid += " * {SPLITS}" if name == COLUMNS_SPLIT else ""
    return Launch(kernel, tunables.named(grid), tunables.named("{THREADS}"))


def _strategy(name: str, reads: float, efficiency: float, launches: int) -> Strategy:
    return Strategy(
        name=name,
        title=_TITLES[name],
        mechanism=_MECHANISMS[name],
        reason="What is scanned passes through registers once, and everything before and after "
        "the scan is fused into that walk.",
        category="parallelism" if launches > 1 else "memory",
        metric="achieved occupancy" if launches > 1 else "dram throughput",
        memory="read twice" if launches > 1 else "single pass, vectors",
        compute="scan in registers",
        parallel=_TITLES[name].lower(),
        bytes_read_factor=reads,
        efficiency=round(efficiency, 3),
        launches=launches,
    )


def _fit(case: Case) -> Fit:
    scans = not case.nest.pointwise and case.has_scan
    return Fit.GOOD if scans and stands_alone(case) else Fit.NO


SCAN_FAMILY = LoopFamily(NAMES, _fit, strategies, emit, FEWER_PASSES)
