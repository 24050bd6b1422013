"""Rows cut into segments for threads: few long rows, and reductions across too few columns.

Few long rows: threads walk the segments of a row side by side. Every segment leaves a partial
result; these are merged in the row's order, whatever thread made them, so the number of threads
does not show in the result. A scan takes one more walk, for what each segment starts from.

Across rows with too few columns to keep every core busy, a reduction becomes two loops: partial
results of segments of the first inner axis, then the rest. Both are ordinary loops of the
intermediate form, so any strategy can print them; partial sums travel in double.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.analysis import Analysis, without_single
from kernelwright.tools.codegen.cpp.frame import Frame, Knobs, SweepPrinter
from kernelwright.tools.codegen.cpp.strategies import SPLIT, Case, emitted, row_family, walking
from kernelwright.tools.codegen.cpp.sweep_plan import SweepPlan, plan_sweeps
from kernelwright.tools.codegen.cpp.templates import render
from kernelwright.tools.codegen.ir import (
    Access,
    Axis,
    Emitted,
    Loop,
    ReduceKind,
    Stmt,
    Store,
    Strategy,
    Stride,
    results,
)
from kernelwright.tools.codegen.ir.loops import statements_behind
from kernelwright.tools.types import DType, Value

_SEGMENT = "segment"
_MERGEABLE = frozenset(
    {
        ReduceKind.SUM,
        ReduceKind.PROD,
        ReduceKind.MAX,
        ReduceKind.MIN,
        ReduceKind.ANY,
        ReduceKind.ALL,
    }
)
MOST_SEGMENTS = 64


class Temporary(Value):
    """A buffer between the two loops, allocated by the plan."""

    name: str
    dtype: DType
    size: int


class Halves(Value):
    """The two loops and what lies between them."""

    first: Loop
    second: Loop
    temporaries: tuple[Temporary, ...]


def halved(loop: Loop, prefix: str, wanted: int) -> Halves:
    """The loop cut into about `wanted` segments.

    Raises:
        ValueError: When it does anything but reduce once, or its first inner axis has no divisor
            that would do.
    """
    loop = without_single(loop)
    facts = Analysis(loop)
    _check(facts)
    axis = loop.inner[0]
    segments = _segments(axis.size, wanted)
    temporaries = tuple(
        Temporary(name=f"{prefix}_{stmt.name}", dtype=_travels_as(stmt), size=segments * loop.rows)
        for stmt in facts.reductions
    )
    return Halves(
        first=_first(facts, axis, segments, temporaries),
        second=_second(facts, segments, temporaries),
        temporaries=temporaries,
    )


def _check(facts: Analysis) -> None:
    loop = facts.loop
    plain = all(stmt.reduce in _MERGEABLE for stmt in facts.reductions)
    once = all(facts.sweep[stmt.name] == 1 for stmt in facts.reductions)
    written = any(facts.is_element_store(store) for store in loop.stores)
    if facts.scans or written or not (plain and once and facts.reductions):
        raise ValueError(f"{loop.name}: only plain reductions have partial results")
    if loop.inner[0].name in facts.indexed:
        raise ValueError(f"{loop.name}: positions along the cut axis are values")


def _segments(size: int, wanted: int) -> int:
    fitting = [n for n in range(2, min(size, MOST_SEGMENTS) + 1) if size % n == 0]
    if not fitting:
        raise ValueError(f"{size} positions cannot be cut evenly")
    return min(fitting, key=lambda n: abs(n - wanted))


def _travels_as(stmt: Stmt) -> DType:
    summed = stmt.reduce in (ReduceKind.SUM, ReduceKind.PROD)
    return DType.FLOAT64 if stmt.dtype.is_floating and summed else stmt.dtype


def _rows(loop: Loop) -> tuple[Stride, ...]:
    """Row-major strides over the outer axes."""
    strides, below = [], 1
    for axis in reversed(loop.outer):
        strides.append(Stride(by=axis.name, step=below))
        below *= axis.size
    return tuple(reversed(strides))


def _place(loop: Loop, temporary: Temporary) -> Access:
    by_segment = Stride(by=_SEGMENT, step=loop.rows)
    strides = (by_segment, *_rows(loop))
    return Access(buffer=temporary.name, dtype=temporary.dtype, strides=strides)


def _first(facts: Analysis, axis: Axis, segments: int, temporaries: tuple[Temporary, ...]) -> Loop:
    """Partial results: the segment becomes an outer axis, and the cut axis gets shorter."""
    loop, each = facts.loop, axis.size // segments
    body = []
    for stmt in _needed(facts, [arg for r in facts.reductions for arg in r.args]):
        access = stmt.access
        if access is not None and access.step(axis.name):
            jump = Stride(by=_SEGMENT, step=access.step(axis.name) * each)
            access = access.model_copy(update={"strides": (*access.strides, jump)})
        body.append(stmt.model_copy(update={"access": access}))
    for stmt, temporary in zip(facts.reductions, temporaries, strict=True):
        body.append(stmt.model_copy(update={"dtype": temporary.dtype}))
    stores = tuple(
        Store(access=_place(loop, temporary), value=stmt.name)
        for stmt, temporary in zip(facts.reductions, temporaries, strict=True)
    )
    outer = (Axis(name=_SEGMENT, size=segments), *loop.outer)
    inner = (Axis(name=axis.name, size=each), *loop.inner[1:])
    return loop.model_copy(
        update={"outer": outer, "inner": inner, "body": tuple(body), "stores": stores}
    )


def _second(facts: Analysis, segments: int, temporaries: tuple[Temporary, ...]) -> Loop:
    """The whole results, and what is computed from them."""
    loop = facts.loop
    body: list[Stmt] = []
    for stmt, temporary in zip(facts.reductions, temporaries, strict=True):
        part, whole = f"{stmt.name}_part", f"{stmt.name}_whole"
        dtype = temporary.dtype
        access = _place(loop, temporary)
        body += [
            Stmt(name=part, op="load", dtype=dtype, access=access),
            Stmt(name=whole, op="reduce", dtype=dtype, args=(part,), reduce=stmt.reduce),
            Stmt(name=stmt.name, op="cast", dtype=stmt.dtype, args=(whole,)),
        ]
    wanted = [name for s in loop.stores for name in (s.value, *facts.indices(s.access))]
    reduced = {stmt.name for stmt in facts.reductions}
    body += [s for s in _needed(facts, wanted, frozenset(reduced)) if s.name not in reduced]
    inner = (Axis(name=_SEGMENT, size=segments),)
    return loop.model_copy(update={"inner": inner, "body": tuple(body)})


def _needed(
    facts: Analysis, names: list[str], known: frozenset[str] = frozenset()
) -> tuple[Stmt, ...]:
    """Statements that some values are computed from, in order, not looking behind `known`."""
    found = statements_behind(
        names, facts.statements, facts.operands, opened=lambda stmt: stmt.name not in known
    )
    return tuple(stmt for stmt in facts.loop.body if stmt.name in found)


MOST_ROWS = 256
_SCAN_TOTALS = {
    "sum": ReduceKind.SUM,
    "prod": ReduceKind.PROD,
    "max": ReduceKind.MAX,
    "min": ReduceKind.MIN,
}


class Member(Value):
    """A variable of a struct, the text that fills it, and the type of a total's value."""

    type: str
    name: str
    text: str = ""
    value: str = ""


class Phase(Value):
    """One parallel walk over all segments, and the merging after it.

    `opens` unpacks what earlier phases found, `walk` is the body over a segment's units, `totals`
    what it leaves behind, `closes` what is computed from the merged totals of a row. `carries`
    names totals that are not merged but handed to the phase `feeds`, each segment getting what
    the ones before it amount to; that phase is `fed`.
    """

    name: str
    units: str
    opens: tuple[str, ...]
    walk: tuple[str, ...]
    totals: tuple[Member, ...]
    closes: tuple[str, ...]
    carries: tuple[Member, ...] = ()
    feeds: str = ""
    fed: bool = False


def split_kernel(frame: Frame, knobs: Knobs, segments: str) -> str:
    """A kernel that spreads every row over threads.

    Raises:
        ValueError: When there are too many rows, or a scan runs over another scan.
    """
    if frame.loop.rows > MOST_ROWS:
        raise ValueError(f"{frame.loop.name}: {frame.loop.rows} rows are enough to share out whole")
    phases: list[Phase] = []
    for plan in plan_sweeps(frame.facts, keeping=False):
        if plan.scans:
            phases.append(_starts(frame, plan, knobs))
        phases.append(_phase(frame, plan, knobs))
    return render(
        "split",
        frame=frame,
        phases=phases,
        known=_known(frame),
        opening=_closing(frame, 0),
        coordinates=frame.decoded(frame.loop.outer, "row"),
        rows=frame.loop.rows,
        segments=segments,
        stream=knobs.stream,
    )


def _printer(frame: Frame, plan: SweepPlan, knobs: Knobs) -> SweepPrinter:
    outer = frame.coordinates(frame.loop.outer)
    return SweepPrinter(plan, frame.names, outer, knobs, frozenset())


def _phase(frame: Frame, plan: SweepPlan, knobs: Knobs) -> Phase:
    printer = _printer(frame, plan, knobs)
    loops = printer.ranged()
    starts = [
        f"{printer.labels.carry(s)} = starts.{printer.labels.carry(s)};" for s, _ in plan.scans
    ]
    totals = [
        Member(type=type_, name=frame.names("total", stmt.name, "_total"), text=text)
        for stmt, type_, text in printer.totals()
    ]
    unit = frame.row_unit(frame.coordinates(frame.loop.outer))
    merged = []
    for stmt, _ in plan.reduces:
        for name in results(stmt):
            total = f"merged.{frame.names('total', stmt.name, '_total')}"
            type_ = frame.facts.type_of(name)
            merged.append(
                f"const {type_} {unit.value(name)} = {acc.result(stmt, name, total, type_)};"
            )
            merged.append(f"known.{unit.value(name)} = {unit.value(name)};")
    closes = [*merged, *_closing(frame, plan.number)]
    return Phase(
        name=f"sweep{plan.number}",
        units=printer.units,
        opens=tuple(_unpacked(frame, plan.number - 1)),
        walk=(*printer.declarations(), *starts, *loops),
        totals=tuple(totals),
        closes=(*_unpacked(frame, plan.number - 1), *closes) if closes else (),
        fed=bool(plan.scans),
    )


def _starts(frame: Frame, plan: SweepPlan, knobs: Knobs) -> Phase:
    """The walk that finds where every segment of a scan starts from."""
    loop = _totals_loop(frame.facts, plan)
    facts = Analysis(loop)
    own = SweepPlan(facts, plan.number, frozenset(), keeping=False)
    if own.group != plan.group or own.leads != plan.leads:
        # Segments must be the same in both walks.
        raise ValueError(f"{frame.loop.name}: the scan's walk cannot be cut like its totals'")
    printer = SweepPrinter(own, frame.names, frame.coordinates(loop.outer), knobs, frozenset())
    loops = printer.ranged()
    main = _printer(frame, plan, knobs)
    carries = tuple(
        Member(
            type=type_,
            name=main.labels.carry(scan),
            text=text,
            value=acc.carry_type(scan, frame.facts.type_of(scan.name)),
        )
        for (scan, _), (_, type_, text) in zip(plan.scans, printer.totals(), strict=True)
    )
    return Phase(
        name=f"totals{plan.number}",
        units=printer.units,
        opens=tuple(_unpacked(frame, plan.number - 1)),
        walk=(*printer.declarations(), *loops),
        totals=(),
        closes=(),
        carries=carries,
        feeds=f"sweep{plan.number}",
    )


def _totals_loop(facts: Analysis, plan: SweepPlan) -> Loop:
    """The loop with its scans of one sweep replaced by reductions, in double."""
    names = {stmt.name for stmt, _ in plan.scans}
    body: list[Stmt] = []
    for stmt in facts.loop.body:
        if stmt.name not in names:
            body.append(stmt)
            continue
        if facts.depends[stmt.args[0]] and any(
            facts.statements[arg].op == "scan" for arg in _closure(facts, stmt.args[0])
        ):
            raise ValueError(f"{facts.loop.name}: a scan of a scan needs whole rows")
        wide = DType.FLOAT64 if stmt.dtype.is_floating else stmt.dtype
        kind = _SCAN_TOTALS[stmt.scan or "sum"]
        reduced = Stmt(
            name=f"{stmt.name}_all", op="reduce", dtype=wide, args=stmt.args, reduce=kind
        )
        body.append(reduced)
    wanted = {f"{name}_all" for name in names}
    keep: set[str] = set()
    for stmt in reversed(body):
        if wanted & set(results(stmt)):
            keep.add(stmt.name)
            wanted |= set(stmt.args) if stmt.op != "index" else set()
            if stmt.access is not None:
                wanted |= {s.by for s in stmt.access.strides}
    kept = tuple(stmt for stmt in body if stmt.name in keep)
    return facts.loop.model_copy(update={"body": kept, "stores": ()})


def _closure(facts: Analysis, name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += facts.operands(facts.statements[here])
    return found


def _row_results(frame: Frame, sweep: int) -> list[str]:
    facts = frame.facts
    reduced = [stmt for stmt in facts.reductions if facts.sweep[stmt.name] == sweep]
    return [name for stmt in reduced for name in results(stmt)]


def _known(frame: Frame) -> list[Member]:
    """Everything found for a row by any phase."""
    names = [
        name
        for sweep in range(frame.facts.sweeps + 1)
        for name in (*_row_results(frame, sweep), *frame.row_values(sweep))
    ]
    return [
        Member(type=frame.facts.type_of(name), name=frame.names("value", name)) for name in names
    ]


def _unpacked(frame: Frame, sweep: int) -> list[str]:
    """What is known of a row after some sweeps, as local variables."""
    lines = []
    for number in range(sweep + 1):
        for name in (*_row_results(frame, number), *frame.row_values(number)):
            value = frame.names("value", name)
            lines.append(f"const {frame.facts.type_of(name)} {value} = known.{value};")
    return lines


def _closing(frame: Frame, sweep: int) -> list[str]:
    """Row-level statements and stores after a sweep."""
    unit = frame.row_unit(frame.coordinates(frame.loop.outer))
    lines = []
    for name in frame.row_values(sweep):
        lines += [unit.define(name), f"known.{unit.value(name)} = {unit.value(name)};"]
    return [*lines, *(unit.write(store) for store in frame.row_stores(sweep))]


def _strategies(case: Case) -> list[Strategy]:
    return [walking(SPLIT, case.walks)]


def _emit(case: Case, name: str, prefix: str) -> Emitted:
    """Segments are a number of their own, so that results do not depend on that of threads."""
    loop = case.loop
    frame = Frame(loop, prefix)
    each = max(1, -(-2 * case.cores // max(1, loop.rows)))
    counts = [each * scale for scale in (4, 1, 16) if each * scale * loop.rows <= 16 * MOST_ROWS]
    segments = frame.tune("SEGMENTS", counts or [1])
    knobs = case.knobs(frame, loop.columns, segments=True)
    return emitted(frame, split_kernel(frame, knobs, segments))


SPLIT_FAMILY = row_family((SPLIT.name,), lambda fits: fits.split, _strategies, _emit)
