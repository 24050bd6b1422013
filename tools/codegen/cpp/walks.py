"""Families that walk a loop one way: element by element, row by row, or neighbouring rows at once.

In a pointwise loop every element is on its own, so the iteration space is cut evenly over threads.
With rows in parallel every thread takes whole rows and walks each as often as it must. For
reductions and scans across the contiguous axis neighbouring rows go side by side: the vector loop
runs over a block of an outer axis, and the inner axes are walked one position at a time. Every
value of a row is then one lane; accumulators are arrays that stay in the nearest cache, and scans
need no stages, because each lane carries its own running value. The reduced axis may also be cut
into segments that threads share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.analysis import dominant, linear, sorted_axes
from kernelwright.tools.codegen.cpp.body import Unit, indented
from kernelwright.tools.codegen.cpp.expressions import cast
from kernelwright.tools.codegen.cpp.frame import (
    Block,
    Frame,
    Knobs,
    SweepPrinter,
    kept_bytes,
    kept_values,
)
from kernelwright.tools.codegen.cpp.split import halved
from kernelwright.tools.codegen.cpp.strategies import (
    COLUMNS,
    COLUMNS_KEPT,
    COLUMNS_SPLIT,
    FLAT,
    ROWS,
    ROWS_KEPT,
    WIDTHS,
    Case,
    emitted,
    row_family,
    walking,
)
from kernelwright.tools.codegen.cpp.sweep_plan import SweepPlan, plan_sweeps
from kernelwright.tools.codegen.cpp.templates import render
from kernelwright.tools.codegen.ir import Emitted, Loop, ReduceKind, Stmt, Store, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily


def flattened(loop: Loop) -> Loop:
    """The loop with all its axes walked, in the order of its first store's memory."""
    if loop.inner:
        raise ValueError(f"{loop.name}: a loop that reduces is not pointwise")
    along = dominant(loop, [store.access for store in loop.stores])
    return loop.model_copy(update={"outer": (), "inner": sorted_axes(loop.outer, along)})


def flat_kernel(frame: Frame, knobs: Knobs) -> str:
    """A kernel for a `flattened` loop."""
    facts = frame.facts
    unit = frame.row_unit({})
    body = [unit.define(name) for name in frame.row_values(0)]
    body += [unit.write(store) for store in frame.row_stores(0)]
    units = "1"
    for plan in plan_sweeps(facts, keeping=False):
        printer = SweepPrinter(plan, frame.names, {}, knobs, frozenset())
        units = printer.units
        loops = printer.ranged()
        body += [*printer.declarations(), *loops]
    return render(
        "flat",
        frame=frame,
        body=body,
        units=units,
        parallel=frame.loop.columns >= 1 << 14,
        stream=knobs.stream,
        parts=knobs.parts,
    )


def _fit(case: Case) -> Fit:
    return Fit.NO if case.loop.inner else Fit.BEST


def _emit_flat(case: Case, name: str, prefix: str) -> Emitted:
    frame = Frame(flattened(case.loop), prefix)
    return emitted(frame, flat_kernel(frame, case.knobs(frame, case.loop.rows)))


FLAT_FAMILY = LoopFamily((FLAT.name,), _fit, lambda case: [FLAT], _emit_flat)


# A thread's row buffers must leave room in its second-level cache, and fit its stack.
MOST_KEPT_BYTES = 512 * 1024


def rows_kernel(frame: Frame, knobs: Knobs, *, keeping: bool) -> str:
    """A kernel that gives each thread whole rows.

    Args:
        frame: The loop.
        knobs: Tunables.
        keeping: Whether values that a later sweep needs are kept in a row buffer; else they are
            computed again from memory.

    Raises:
        ValueError: When the buffers would be too large, or there is nothing to keep.
    """
    plans = plan_sweeps(frame.facts, keeping=keeping)
    kept = kept_values(plans)
    if keeping and not kept:
        raise ValueError(f"{frame.loop.name}: no value is worth keeping for a later sweep")
    if kept_bytes(frame.facts, kept, frame.loop.columns) > MOST_KEPT_BYTES:
        raise ValueError(f"{frame.loop.name}: a row is too long to keep")
    return render(
        "rows",
        frame=frame,
        body=_row(frame, plans, knobs, kept),
        rows=frame.loop.rows,
        parallel=frame.loop.rows > 1 and frame.loop.rows * frame.loop.columns >= 1 << 14,
        stream=knobs.stream,
        parts=knobs.parts,
    )


def _row(
    frame: Frame, plans: tuple[SweepPlan, ...], knobs: Knobs, kept: frozenset[str]
) -> list[str]:
    outer = frame.coordinates(frame.loop.outer)
    unit = frame.row_unit(outer)
    lines = frame.decoded(frame.loop.outer, "row")
    for name in sorted(kept):
        type_, buffer = frame.facts.type_of(name), frame.names("kept", name, "_kept")
        lines.append(f"alignas(64) {type_} {buffer}[{frame.loop.columns}];")
    lines += [unit.define(name) for name in frame.row_values(0)]
    lines += [unit.write(store) for store in frame.row_stores(0)]
    for plan in plans:
        printer = SweepPrinter(plan, frame.names, outer, knobs, kept)
        loops = printer.nested()
        lines += [*printer.declarations(), *loops]
        for name, text in printer.results():
            type_ = frame.facts.type_of(name)
            lines.append(f"const {type_} {unit.value(name)} = {text};")
        lines += [unit.define(name) for name in frame.row_values(plan.number)]
        lines += [unit.write(store) for store in frame.row_stores(plan.number)]
    return lines


def _row_strategies(case: Case) -> list[Strategy]:
    return [ROWS_KEPT, walking(ROWS, case.walks)]


def _emit_rows(case: Case, name: str, prefix: str) -> Emitted:
    frame = Frame(case.loop, prefix)
    knobs = case.knobs(frame, case.loop.columns)
    return emitted(frame, rows_kernel(frame, knobs, keeping=name == ROWS_KEPT.name))


ROW_FAMILY = row_family(
    (ROWS_KEPT.name, ROWS.name), lambda fits: fits.rows, _row_strategies, _emit_rows
)


class ColumnLane:
    """The body of one vector loop, built by wanting values.

    `before` holds values that are the same for all lanes, as positions that are computed from the
    walk's own: pointers of the unit are computed from them.
    """

    def __init__(self, block: Block, unit: Unit, sweep: int, *, rows_only: bool) -> None:
        self.block, self.unit, self.sweep = block, unit, sweep
        self.facts = block.facts
        self.rows_only = rows_only
        self.before: list[str] = []
        self.lines: list[str] = []
        self.scans: list[Stmt] = []
        self.computed: set[str] = set()
        self.positioned = False
        self._have: set[str] = set()
        self._same: set[str] = set()

    def want(self, name: str) -> None:
        """Makes a value available in the body."""
        facts, block = self.facts, self.block
        if name in self._have or facts.is_literal(name):
            return
        self._have.add(name)
        stmt = facts.statements[name]
        type_, value = facts.type_of(name), self.unit.value(name)
        element = bool(facts.depends[name] & facts.inner)
        if stmt.op == "reduce":
            text = acc.result(stmt, name, block.accumulator(stmt), type_, "j")
            self.lines.append(f"const {type_} {value} = {text};")
        elif not element and self._is_saved(name):
            block.saved.add(name)
            self.lines.append(f"const {type_} {value} = {block.saved_at(name)};")
        elif element and block.is_worth_keeping(name):
            block.kept.add(name)
            self.positioned = True
            self.lines.append(f"const {type_} {value} = {block.kept_at(name)};")
        else:
            self._compute(stmt, name)
            if element:
                self._keep(name)

    def store(self, store: Store) -> None:
        """Adds a store."""
        for name in (store.value, *self.facts.indices(store.access)):
            self.want(name)
        self.lines.append(self.unit.write(store))

    def reduce(self, stmt: Stmt) -> None:
        """Adds a reduction's step."""
        self.want(stmt.args[0])
        value, have = self.unit.value(stmt.args[0]), self.facts.type_of(stmt.args[0])
        text = acc.argument(stmt, value, have, self.block.element(stmt))
        extra = ", first" if stmt.reduce in acc.POSITIONED else ""
        self.lines.append(f"{self.block.accumulator(stmt)}.add(j, {text}{extra});")

    def _is_saved(self, name: str) -> bool:
        """Values of this very loop are computed in it; later loops read what it saved."""
        fresh = self.rows_only and self.facts.sweep[name] == self.sweep
        return not fresh and self.block.is_worth_saving(name)

    def _compute(self, stmt: Stmt, name: str) -> None:
        operands = self.facts.operands(stmt)
        for arg in operands:
            self.want(arg)
        if stmt.op != "scan":
            known = all(arg in self._same or self.facts.is_literal(arg) for arg in operands)
            if known and not self.unit.varies(name):
                self._same.add(name)
                self.before.append(self.unit.define(name))
            else:
                self.lines.append(self.unit.define(name))
            return
        self.scans.append(stmt)
        carry, type_ = self.block.carry(stmt, self.sweep), self.facts.type_of(name)
        have = self.facts.type_of(stmt.args[0])
        added = cast(self.unit.value(stmt.args[0]), have, type_)
        self.lines.append(f"{carry}.add(j, {added});")
        self.lines.append(f"const {type_} {self.unit.value(name)} = {type_}({carry}.value(j));")

    def _keep(self, name: str) -> None:
        self.computed.add(name)
        if name in self.block.kept:
            self.positioned = True
            self.lines.append(f"{self.block.kept_at(name)} = {self.unit.value(name)};")


# Two vectors at a time: a block's accumulators do not fit in registers anyway.
_LANES = 16


def turned(loop: Loop) -> Loop:
    """The loop with its outer axes ordered so that the last one is contiguous in memory."""
    loads = [stmt.access for stmt in loop.body if stmt.access is not None]
    along = dominant(loop, loads or None)
    return loop.model_copy(update={"outer": sorted_axes(loop.outer, along)})


def columns_kernel(frame: Frame, widths: Sequence[int], parts: str, *, keeping: bool) -> str:
    """A kernel for blocks of neighbouring rows.

    Args:
        frame: A `turned` loop.
        widths: How many rows a block may have.
        parts: C++ text of how many pieces threads take.
        keeping: Whether values that a later sweep needs are kept, for a whole block.

    Raises:
        ValueError: When buffers would be too large, or there is nothing to keep.
    """
    probe = _probed(frame, parts, keeping=keeping)
    fitting = [width for width in widths if probe.kept_bytes(width) <= MOST_KEPT_BYTES]
    if keeping and not probe.kept:
        raise ValueError(f"{frame.loop.name}: no value is worth keeping for a later sweep")
    if not fitting:
        raise ValueError(f"{frame.loop.name}: a block of rows is too long to keep")
    block = Block(frame, frame.tune("WIDTH", fitting), keeping=keeping)
    block.kept, block.saved = probe.kept, probe.saved
    return _Printer(block, parts).text()


def _probed(frame: Frame, parts: str, *, keeping: bool) -> Block:
    """A block that knows what is kept and saved.

    Found by printing with these decisions open: a later sweep says that a row's value is to be
    saved, which may be computed from one that an earlier place has to save for that.
    """
    known = Block(frame, "1", keeping=keeping)
    while True:
        probe = Block(frame, "1", keeping=keeping)
        probe.kept, probe.saved = set(known.kept), set(known.saved)
        _Printer(probe, parts).body()
        if (probe.kept, probe.saved) == (known.kept, known.saved):
            return probe
        known = probe


class _Printer:
    def __init__(self, block: Block, parts: str) -> None:
        self.parts = parts
        self.block, self.frame, self.facts = block, block.frame, block.facts
        self.outer = self.frame.coordinates(block.leads)
        self.within = self.frame.coordinates(self.frame.loop.inner)

    def text(self) -> str:
        """The kernel."""
        size, width = self.block.group.size, self.block.width
        blocks = f"(({size} + {width} - 1) / {width})"
        body = [
            f"const int64_t block_start = tile % {blocks} * int64_t({width});",
            f"const int64_t left = {size} - block_start;",
            f"const int64_t n = left < {width} ? left : int64_t({width});",
            *self.frame.decoded(self.block.leads, f"(tile / {blocks})"),
            *self.body(),
        ]
        leads = prod(axis.size for axis in self.block.leads)
        return render(
            "columns",
            frame=self.frame,
            body=body,
            tiles=f"int64_t({leads}) * {blocks}",
            parts=self.parts,
            parallel=self.frame.loop.rows * self.frame.loop.columns >= 1 << 14,
        )

    def body(self) -> list[str]:
        """Everything that happens to one block."""
        lines = [*self.block.declarations(), *self._rows(0)]
        for sweep in range(1, self.facts.sweeps + 1):
            lines += [*self._sweep(sweep), *self._rows(sweep)]
        return lines

    def _unit(self, tag: str, coordinates: Mapping[str, str]) -> Unit:
        group, names = self.block.group, self.block.names
        return Unit(self.facts, names, group, coordinates, "block_start", tag)

    def _rows(self, sweep: int) -> list[str]:
        """One vector loop over what is known for every row after a sweep."""
        stores = self.frame.row_stores(sweep)
        saves = [name for name in self.frame.row_values(sweep) if name in self.block.saved]
        if not stores and not saves:
            return []
        unit = self._unit(f"_after{sweep}", self.outer)
        lane = ColumnLane(self.block, unit, sweep, rows_only=True)
        for name in saves:
            lane.want(name)
            lane.lines.append(f"{self.block.saved_at(name)} = {unit.value(name)};")
        for store in stores:
            lane.store(store)
        inside = [*lane.before, *unit.preamble, *_lanes(unit, lane.lines)]
        return ["{", *indented(inside), "}"]

    def _sweep(self, sweep: int) -> list[str]:
        """The loops over inner positions that one sweep needs."""
        facts, block = self.facts, self.block
        unit = self._unit(f"_{sweep}", {**self.outer, **self.within})
        lane = ColumnLane(block, unit, sweep, rows_only=False)
        reduces = [stmt for stmt in facts.reductions if facts.sweep[stmt.name] == sweep]
        for stmt in reduces:
            lane.reduce(stmt)
        for stmt in facts.scans:
            if facts.sweep[stmt.name] == sweep - 1:
                lane.want(stmt.name)
        for store in facts.loop.stores:
            if facts.is_element_store(store) and facts.store_sweep(store) == sweep - 1:
                lane.store(store)
        declared = [block.accumulator_declaration(stmt) for stmt in reduces]
        declared += [block.carry_declaration(stmt, sweep) for stmt in lane.scans]
        inside = [
            f"{block.accumulator(stmt)}.next();"
            for stmt in reduces
            if stmt.reduce is ReduceKind.MOMENTS
        ]
        if lane.positioned or any(stmt.reduce in acc.POSITIONED for stmt in reduces):
            position = linear(self.frame.loop.inner, self.within.__getitem__)
            inside.append(f"const int64_t first = {position};")
        inside += [*lane.before, *unit.preamble, *_lanes(unit, lane.lines)]
        block.prior |= lane.computed
        return [*declared, *self._nested(inside)]

    def _nested(self, lines: list[str]) -> list[str]:
        for axis in reversed(self.frame.loop.inner):
            at = self.within[axis.name]
            head = f"for (int64_t {at} = 0; {at} < {axis.size}; ++{at}) {{"
            lines = [head, *indented(lines), "}"]
        return lines


def _lanes(unit: Unit, lines: list[str]) -> list[str]:
    head = f"kw::lanes<{_LANES}>(n, [&](int64_t j, int) {{"
    return [head, *indented([*unit.decoding(), *lines]), "});"]


def _column_strategies(case: Case) -> list[Strategy]:
    return [COLUMNS_KEPT, walking(COLUMNS, case.walks)]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop with neighbouring rows side by side.

    Raises:
        ValueError: When a block of rows is too long to keep, or there is nothing to keep.
    """
    loop = case.loop
    frame = Frame(turned(loop), prefix)
    widths = [width for width in WIDTHS if width <= max(min(WIDTHS), loop.rows)]
    widths = widths[:1] if case.is_small else widths
    kernel = columns_kernel(frame, widths, case.parts(frame), keeping=name == COLUMNS_KEPT.name)
    return emitted(frame, kernel)


COLUMN_FAMILY = row_family(
    (COLUMNS_KEPT.name, COLUMNS.name), lambda fits: fits.columns, _column_strategies, emit
)


def _emit_columns(case: Case, name: str, prefix: str) -> Emitted:
    function = Frame(case.loop, prefix).function
    halves = halved(case.loop, function, 4 * case.cores)
    first = _half(case, halves.first, f"{function}_partials")
    second = _half(case, halves.second, f"{function}_whole")
    made = tuple(
        f'{item.name} = empty(({item.size},), dtype="{item.dtype.value}")'
        for item in halves.temporaries
    )
    source = f"{first.source}\n{second.source}"
    return Emitted(source=source, plan=(*made, *first.plan, *second.plan))


def _half(case: Case, loop: Loop, prefix: str) -> Emitted:
    return emit(Case(loop, case.hardware), COLUMNS.name, prefix)


COLUMN_SPLIT_FAMILY = row_family(
    (COLUMNS_SPLIT.name,),
    lambda fits: fits.columns_split,
    lambda case: [COLUMNS_SPLIT],
    _emit_columns,
)
