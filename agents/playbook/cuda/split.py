"""Strategies that spread one row over many blocks, one kernel a pass."""

from dataclasses import dataclass, replace

from agents.playbook.cuda.body import Body, Load, PassCode
from agents.playbook.cuda.case import Case
from agents.playbook.cuda.kernels import allocations, kernels_of, partial_arguments
from agents.playbook.cuda.printing import Printer, Stream
from agents.playbook.cuda.rendering import Launch, Tunables, buffer_arguments, complete, render
from agents.playbook.cuda.schedule import Kept
from agents.playbook.cuda.types import c_type
from agents.playbook.ir import Emitted, Strategy

SPLIT = "split_rows"
TOGETHER = "split_rows_together"
NAMES = (SPLIT, TOGETHER)
_TITLES = {
    SPLIT: "Rows split over blocks, partials in memory",
    TOGETHER: "Rows split over blocks and written together, what they share read once",
}
_SMALLEST_SHARE_BYTES = 8 * 1024
_LARGE_SHARE_BYTES = 256 * 1024
# Rows that a block writes together: each reads what they share from registers, not from a cache.
_ROWS_TOGETHER = (4, 8, 2, 16)
# Not measured yet: behind what was measured on the same rows, whatever bytes promise.
_TOGETHER_EFFICIENCY = 0.7


@dataclass(frozen=True)
class Together:
    """What the writing pass reads once for several rows, and its code without that."""

    streams: tuple[Stream, ...]
    decode: tuple[str, ...]
    loads: tuple[Load, ...]
    code: PassCode


def strategies(case: Case) -> list[Strategy]:
    """Splitting, where rows are few or long enough to be split."""
    if not case.schedule.passes or max(_splits(case)) < 2 or _rows_suffice(case):
        return []
    passes, ends = len(case.schedule.passes), case.schedule.ends_in_reduction
    finish = (
        "the last block to finish a row combines its partials in the same launch"
        if ends
        else "each kernel combines the partials of its row before it starts"
    )
    few = case.nest.rows < 2 * case.multiprocessors
    plain = Strategy(
        name=SPLIT,
        title=_TITLES[SPLIT],
        mechanism=f"Several blocks take a share of a row each and leave their partials in "
        f"memory; {finish}. Later passes run in reverse, so that they meet the L2's tail.",
        reason="Few or very long rows leave most multiprocessors idle when a block has a "
        "whole row; shares of rows fill the device whatever the shape.",
        category="parallelism",
        metric="achieved occupancy",
        memory="streamed" if passes == 1 else "read again per pass",
        compute=f"{passes} passes" if passes > 1 else "one pass",
        parallel="many blocks per row",
        bytes_read_factor=_reads(case, passes),
        efficiency=0.95 if few or case.read_bytes >= _LARGE_SHARE_BYTES else 0.6,
        launches=passes + int(ends),
    )
    return [plain, *([_written_together(plain)] if _shared_loads(case) else [])]


def _written_together(plain: Strategy) -> Strategy:
    return plain.model_copy(
        update={
            "name": TOGETHER,
            "title": _TITLES[TOGETHER],
            "mechanism": f"{plain.mechanism} In the last one a block writes the same columns of "
            "several rows, with what rows share in registers.",
            "reason": f"{plain.reason} What rows share does not cross the chip for each of them.",
            "memory": f"{plain.memory}, shared operands in registers",
            "efficiency": _TOGETHER_EFFICIENCY,
        }
    )


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a split row loop.

    Raises:
        ValueError: When there is nothing to split.
    """
    if not case.schedule.passes:
        raise ValueError(f"{case.loop.name}: {name} needs a pass over the row")
    nest, vectors = case.nest, case.along_rows
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix)
    kernels = kernels_of(body, prefix)
    # Marking a read first to evict pays only for the last of several.
    loads = (1, 0) if len(case.schedule.passes) > 1 else (0, 1)
    wide = name == SPLIT
    tunables = Tunables(prefix).add("THREADS", (256, 512, 128, 1024) if wide else (256, 128, 512))
    tunables.add("VECTOR", vectors.widths if wide else vectors.widths[:2])
    tunables.add("UNROLL", (4, 2, 8, 1) if wide else (4, 2, 8))
    tunables.add("SPLITS", _splits(case)).add("LOADS", loads).add("STORES", (1, 0))
    together = _together(case, body, prefix) if name == TOGETHER else None
    if together is not None:
        tunables.add("ROWS", [n for n in _ROWS_TOGETHER if n <= nest.rows])
    source = render(
        "split",
        title=_TITLES[name],
        prefix=tunables.prefix,
        tunables=tunables.text(),
        kernels=kernels,
        together=together,
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
    blocks = tunables.named(f"{nest.rows} * {{SPLITS}}")
    launches = [Launch(kernel.name, blocks, tunables.named("{THREADS}")) for kernel in kernels]
    if together is not None:
        fewer = tunables.named(f"ceil_div({nest.rows}, {{ROWS}}) * {{SPLITS}}")
        launches[-1] = replace(launches[-1], grid=fewer)
    arguments = [*buffer_arguments(nest), *partial_arguments(kernels, prefix)]
    text, plan = complete(source, arguments, launches)
    lines = allocations(kernels, prefix, blocks, str(nest.rows))
    return Emitted(source=text, plan=(*lines, *plan))


def _shared_loads(case: Case) -> tuple[Kept, ...]:
    """What the writing pass reads alike for every row, where that is too much for a cache."""
    nest = case.nest
    if not case.shares_columns or case.schedule.passes[-1].reductions:
        return ()
    if len(case.schedule.passes) < 2:
        return ()
    shared = []
    for stmt in case.schedule.passes[-1].element:
        place = nest.places.get(stmt.name)
        if stmt.name not in case.along_rows.loads or place is None or place.gathers:
            continue
        if any(place.inner) and not any(place.outer):
            shared.append(Kept(stmt, True, place.dtype.itemsize_bytes, c_type(place.dtype)))
    return tuple(shared)


def _together(case: Case, body: Body, prefix: str) -> Together:
    """The writing pass over several rows.

    Raises:
        ValueError: When rows share nothing that matters.
    """
    shared, printer = _shared_loads(case), body.printer
    if not shared:
        raise ValueError(f"{case.loop.name}: {TOGETHER} does not fit")
    names = [one.stmt.name for one in shared]
    raw = {f"raw_{name}" for name in names}
    return Together(
        streams=tuple(printer.streams(names, ())),
        decode=tuple(printer.walk_decode([case.nest.places[name] for name in names])),
        loads=tuple(load for load in body.passes()[-1].loads if load.raw in raw),
        code=Body(printer, case.schedule, prefix, shared).passes()[-1],
    )


def _rows_suffice(case: Case) -> bool:
    """Whether rows are so many and so short that shares of them only add partials."""
    many = case.nest.rows >= 8 * case.multiprocessors
    return many and case.read_bytes < 8 * _SMALLEST_SHARE_BYTES


def _splits(case: Case) -> list[int]:
    """Blocks a row: a few waves of the device, and no share too small to be worth a block."""
    most = max(1, case.row_bytes // _SMALLEST_SHARE_BYTES)
    # Where rows alone fill the device, a share is what a block works on for a few microseconds.
    base = max(8 * case.multiprocessors // case.nest.rows, case.row_bytes // _LARGE_SHARE_BYTES, 2)
    wanted = (base, base // 2, 2 * base, 4 * base, base // 4)
    return list(dict.fromkeys(max(1, min(most, n)) for n in wanted))


def _reads(case: Case, passes: int) -> float:
    moved = case.row_bytes * case.nest.rows
    if passes == 1 or moved < case.cache_bytes:
        return 1.0
    # The reversed order finds about the cache's share in L2, once for each pass after the first.
    saved = min(1.0, case.cache_bytes / moved)
    return round(1 + (passes - 1) * (1 - saved), 3)
