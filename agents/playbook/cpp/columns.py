"""Neighbouring rows side by side: for reductions and scans across the contiguous axis.

The vector loop runs over a block of an outer axis, and the inner axes are walked one position at
a time. Every value of a row is then one lane; accumulators are arrays that stay in the nearest
cache. Scans need no stages here, because each lane carries its own running value.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.playbook.cpp import accumulators as acc
from agents.playbook.cpp.frame import Frame
from agents.playbook.cpp.geometry import LaneGroup, dominant, lane_group, linear, sorted_axes
from agents.playbook.cpp.lanes import Unit
from agents.playbook.cpp.spelling import SIZE_BYTES, cast
from agents.playbook.cpp.sweep import indented
from agents.playbook.cpp.templates import render
from agents.playbook.ir import Axis, Loop, ReduceKind, Stmt, Store

MOST_KEPT_BYTES = 512 * 1024


def turned(loop: Loop) -> Loop:
    """The loop with its outer axes ordered so that the last one is contiguous in memory."""
    loads = [s.access for s in loop.body if s.access is not None]
    along = dominant(loop, loads or None)
    return loop.model_copy(update={"outer": sorted_axes(loop.outer, along)})


class ColumnsKernel:
    """Prints a loop for blocks of neighbouring rows.

    Args:
        frame: A `turned` loop.
        width: C++ text of the number of rows in a block.
        lanes: C++ text of the vector loop's stride.
        most_width: The largest value of `width`, which buffers must suffice for.
        keeping: Whether values that a later sweep needs are kept, for a whole block.

    Raises:
        ValueError: When buffers would be too large, or there is nothing to keep.
    """

    def __init__(
        self, frame: Frame, width: str, lanes: str, most_width: int, *, keeping: bool
    ) -> None:
        self.frame, self.facts, self.names = frame, frame.facts, frame.names
        self.width, self.lanes, self.keeping = width, lanes, keeping
        loop = frame.loop
        self.inner = loop.inner
        self.leads, self.group = lane_group(loop.outer, self.facts.accesses(), self.facts.indexed)
        self.outer = frame.coordinates(self.leads)
        self.within = frame.coordinates(self.inner)
        self.kept: set[str] = set()
        self.saved: set[str] = set()
        self._prior: set[str] = set()
        self._plan()
        bytes_ = sum(SIZE_BYTES[self.facts.type_of(name)] for name in self.kept)
        if keeping and not self.kept:
            raise ValueError(f"{loop.name}: no value is worth keeping for a later sweep")
        if bytes_ * loop.columns * most_width > MOST_KEPT_BYTES:
            raise ValueError(f"{loop.name}: a block of rows is too long to keep")

    def text(self) -> str:
        """The kernel."""
        size = self.group.size
        blocks = f"(({size} + {self.width} - 1) / {self.width})"
        body = [
            f"const int64_t block_start = tile % {blocks} * int64_t({self.width});",
            f"const int64_t left = {size} - block_start;",
            f"const int64_t n = left < {self.width} ? left : int64_t({self.width});",
            *self.frame.decoded(self.leads, f"(tile / {blocks})"),
            *self._body(),
        ]
        rows = 1
        for axis in self.leads:
            rows *= axis.size
        total = self.frame.loop.rows * self.frame.loop.columns
        return render(
            "columns",
            frame=self.frame,
            body=body,
            tiles=f"int64_t({rows}) * {blocks}",
            parallel=total >= 1 << 14,
        )

    def _plan(self) -> None:
        """Finds what must be kept by printing everything once and throwing the text away."""
        self._body()
        self._prior = set()

    def _body(self) -> list[str]:
        lines = [
            f"alignas(64) {self.facts.type_of(name)} {self._kept(name)}"
            f"[{self.frame.loop.columns} * {self.width}];"
            for name in sorted(self.kept)
        ]
        for name in sorted(self.saved):
            lines.append(
                f"alignas(64) {self.facts.type_of(name)} {self._saved(name)}[{self.width}];"
            )
        lines += self._rows(0)
        for sweep in range(1, self.facts.sweeps + 1):
            lines += [*self._sweep(sweep), *self._rows(sweep)]
        return lines

    def _unit(self, tag: str, coordinates: Mapping[str, str]) -> Unit:
        group, start = self.group, "block_start"
        return Unit(self.facts, self.names, group, coordinates, start, tag)

    def _rows(self, sweep: int) -> list[str]:
        """One vector loop over what is known for every row after a sweep."""
        stores = self.frame.row_stores(sweep)
        saves = [name for name in self.frame.row_values(sweep) if name in self.saved]
        if not stores and not saves:
            return []
        unit = self._unit(f"_after{sweep}", self.outer)
        lane = _Lane(self, unit, sweep, rows_only=True)
        for name in saves:
            lane.want(name)
            lane.lines.append(f"{self._saved(name)}[j] = {unit.value(name)};")
        for store in stores:
            lane.store(store)
        return ["{", *indented([*unit.preamble, *self._lanes(unit, lane.lines)]), "}"]

    def _sweep(self, sweep: int) -> list[str]:
        facts = self.facts
        unit = self._unit(f"_{sweep}", {**self.outer, **self.within})
        lane = _Lane(self, unit, sweep, rows_only=False)
        declared = []
        reduces = [stmt for stmt in facts.reductions if facts.sweep[stmt.name] == sweep]
        scans = [stmt for stmt in facts.scans if facts.sweep[stmt.name] == sweep - 1]
        for stmt in reduces:
            declared.append(f"{self._accumulator(stmt)} {self.accumulator(stmt)};")
            lane.reduce(stmt)
        for stmt in scans:
            lane.want(stmt.name)
        for store in facts.loop.stores:
            if facts.is_element_store(store) and facts.store_sweep(store) == sweep - 1:
                lane.store(store)
        declared += [self._carry_declaration(stmt, sweep) for stmt in lane.scans]
        inside = [
            f"{self.accumulator(s)}.next();" for s in reduces if s.reduce is ReduceKind.MOMENTS
        ]
        if self._needs_position(reduces) or lane.positioned:
            position = linear(self.inner, self.within.__getitem__)
            inside.append(f"const int64_t first = {position};")
        inside += [*unit.preamble, *self._lanes(unit, lane.lines)]
        self._prior |= lane.computed
        return [*declared, *self._nested(inside)]

    def _lanes(self, unit: Unit, lines: list[str]) -> list[str]:
        head = f"kw::lanes<{self.lanes}>(n, [&](int64_t j, int) {{"
        return [head, *indented([*unit.decoding(), *lines]), "});"]

    def _nested(self, lines: list[str]) -> list[str]:
        for axis in reversed(self.inner):
            at = self.within[axis.name]
            head = f"for (int64_t {at} = 0; {at} < {axis.size}; ++{at}) {{"
            lines = [head, *indented(lines), "}"]
        return lines

    def _needs_position(self, reduces: list[Stmt]) -> bool:
        return any(stmt.reduce in acc.POSITIONED for stmt in reduces)

    def _carry_declaration(self, stmt: Stmt, sweep: int) -> str:
        type_ = self.facts.type_of(stmt.name)
        carry = acc.carry_type(stmt, type_)
        return (
            f"kw::Columns<{carry}, {acc.scan_operator(stmt)}, {carry}, {self.width}> "
            f"{self.carry(stmt, sweep)};"
        )

    def _accumulator(self, stmt: Stmt) -> str:
        return acc.column_accumulator(stmt, self.element(stmt), self.width)

    def element(self, stmt: Stmt) -> str:
        """The C++ type that a reduction accumulates."""
        have = self.facts.type_of(stmt.args[0])
        return acc.element_type(stmt, have, self.facts.type_of(stmt.name))

    def accumulator(self, stmt: Stmt) -> str:
        """The identifier of a reduction's accumulator."""
        return self.names("accumulator", stmt.name, "_acc")

    def carry(self, stmt: Stmt, sweep: int) -> str:
        """The identifier of a scan's running values."""
        return self.names(f"carry{sweep}", stmt.name, "_carry")

    def is_worth_keeping(self, name: str) -> bool:
        """Whether an earlier sweep's value is kept rather than computed again."""
        outside = frozenset(axis.name for axis in self.leads)
        return self.keeping and name in self._prior and self.facts.is_costly(name, outside)

    def is_worth_saving(self, name: str) -> bool:
        """Whether a row's value is saved rather than computed again at every inner position."""
        outside = frozenset(axis.name for axis in self.leads)
        stmt = self.facts.statements[name]
        return stmt.op != "load" and self.facts.is_costly(name, outside)

    def kept_at(self, name: str) -> str:
        """The element of a kept value."""
        return f"{self._kept(name)}[first * {self.width} + j]"

    def saved_at(self, name: str) -> str:
        """The element of a row's saved value."""
        return f"{self._saved(name)}[j]"

    def _kept(self, name: str) -> str:
        return self.names("kept", name, "_kept")

    def _saved(self, name: str) -> str:
        return self.names("saved", name, "_saved")


class _Lane:
    """The body of one vector loop, built by wanting values."""

    def __init__(self, kernel: ColumnsKernel, unit: Unit, sweep: int, *, rows_only: bool) -> None:
        self.kernel, self.unit, self.sweep = kernel, unit, sweep
        self.facts = kernel.facts
        self.rows_only = rows_only
        self.lines: list[str] = []
        self.scans: list[Stmt] = []
        self.computed: set[str] = set()
        self.positioned = False
        self._have: set[str] = set()

    def want(self, name: str) -> None:
        """Makes a value available in the body."""
        facts, kernel = self.facts, self.kernel
        if name in self._have or facts.is_literal(name):
            return
        self._have.add(name)
        stmt = facts.statements[name]
        type_, value = facts.type_of(name), self.unit.value(name)
        element = bool(facts.depends[name] & facts.inner)
        if stmt.op == "reduce":
            text = acc.result(stmt, name, kernel.accumulator(stmt), type_, "j")
            self.lines.append(f"const {type_} {value} = {text};")
        elif not element and self._is_saved(name):
            kernel.saved.add(name)
            self.lines.append(f"const {type_} {value} = {kernel.saved_at(name)};")
        elif element and kernel.is_worth_keeping(name):
            kernel.kept.add(name)
            self.positioned = True
            self.lines.append(f"const {type_} {value} = {kernel.kept_at(name)};")
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
        text = acc.argument(stmt, value, have, self.kernel.element(stmt))
        extra = ", first" if stmt.reduce in acc.POSITIONED else ""
        self.lines.append(f"{self.kernel.accumulator(stmt)}.add(j, {text}{extra});")

    def _is_saved(self, name: str) -> bool:
        """Values of this very loop are computed in it; later loops read what it saved."""
        fresh = self.rows_only and self.facts.sweep[name] == self.sweep
        return not fresh and self.kernel.is_worth_saving(name)

    def _compute(self, stmt: Stmt, name: str) -> None:
        for arg in self.facts.operands(stmt):
            self.want(arg)
        if stmt.op != "scan":
            self.lines.append(self.unit.define(name))
            return
        self.scans.append(stmt)
        carry, type_ = self.kernel.carry(stmt, self.sweep), self.facts.type_of(name)
        have = self.facts.type_of(stmt.args[0])
        added = cast(self.unit.value(stmt.args[0]), have, type_)
        self.lines.append(f"{carry}.add(j, {added});")
        self.lines.append(f"const {type_} {self.unit.value(name)} = {type_}({carry}.value(j));")

    def _keep(self, name: str) -> None:
        self.computed.add(name)
        if name in self.kernel.kept:
            self.positioned = True
            self.lines.append(f"{self.kernel.kept_at(name)} = {self.unit.value(name)};")


def blocks(leads: tuple[Axis, ...], group: LaneGroup, width: int) -> int:
    """How many tiles a loop makes at a block width."""
    count = -(-group.size // width)
    for axis in leads:
        count *= axis.size
    return count
