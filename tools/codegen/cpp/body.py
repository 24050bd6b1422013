"""Prints what a sweep does at one position (`Unit`) and with one chunk of a row (`ChunkBody`).

A *unit* is the part of a loop between its outer loops and the vector loop: pointers are computed
there once, and the vector loop indexes them by `j`. It prints addresses, loads, operators and
stores; the body of a chunk puts them together stage by stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.accumulators import Labels
from kernelwright.tools.codegen.cpp.analysis import Analysis, LaneGroup, address, linear
from kernelwright.tools.codegen.cpp.expressions import (
    STORED,
    Names,
    cast,
    expression,
    loaded,
    stored,
)
from kernelwright.tools.codegen.cpp.sweep_plan import TWO_STAGES, SweepPlan
from kernelwright.tools.codegen.ir import Access, Stmt, Store


class Unit:
    """Prints statements for one position of the loops around a vector loop.

    Args:
        facts: The loop.
        names: Identifiers of the kernel.
        group: Axes of the vector loop.
        coordinates: C++ text of every other axis's coordinate.
        start: C++ text of the vector loop's first position in the group.
        tag: Keeps pointers of several units in one function apart.

    After the vector loop is printed, `preamble` holds the pointers it needs.
    """

    def __init__(
        self,
        facts: Analysis,
        names: Names,
        group: LaneGroup,
        coordinates: Mapping[str, str],
        start: str,
        tag: str,
    ) -> None:
        self.facts, self.names, self.group = facts, names, group
        self.preamble: list[str] = []
        self.decodes = False
        self._coordinates = {k: v for k, v in coordinates.items() if k not in group.names()}
        self._start, self._tag = start, tag
        self._pointers: dict[Access, str] = {}

    def value(self, name: str) -> str:
        """A value as it is written in an expression."""
        facts = self.facts
        return facts.spelled(name) if facts.is_literal(name) else self.names("value", name)

    def define(self, name: str) -> str:
        """The statement that computes a value from values in scope."""
        return f"const {self.facts.type_of(name)} {self.value(name)} = {self.compute(name)};"

    def compute(self, name: str) -> str:
        """The expression of a load, an index or a pointwise statement."""
        stmt = self.facts.statements[name]
        if stmt.op == "index":
            return f"int64_t({self._coordinate(stmt.args[0])})"
        if stmt.op == "load" and stmt.access is not None:
            text = loaded(self.element(stmt.access), stmt.access.dtype)
            zero = f"{self.facts.type_of(name)}(0)"
            return f"{self.value(stmt.args[0])} ? {text} : {zero}" if stmt.args else text
        if stmt.op in ("load", "reduce", "scan"):
            raise ValueError(f"{stmt.op} {stmt.name!r} has no expression")
        exponent = self.facts.constant(stmt.args[1]) if stmt.op == "pow" else None
        types = [self.facts.type_of(arg) for arg in stmt.args]
        args = [self.value(arg) for arg in stmt.args]
        kinds = {*types, self.facts.type_of(name)}
        if name in self.facts.alone and kinds in ({"float"}, {"double"}):
            return f"kw::product({args[0]}, {args[-1]})"
        return expression(stmt, args, types, exponent)

    def write(self, store: Store) -> str:
        """The statement that makes a store."""
        return f"{self.element(store.access, writing=True)} = {self.converted(store)};"

    def converted(self, store: Store) -> str:
        """A stored value in the buffer's type."""
        type_ = self.facts.type_of(store.value)
        return stored(self.value(store.value), type_, store.access.dtype)

    def element(self, access: Access, *, writing: bool = False) -> str:
        """The element at an access's position, as an lvalue."""
        if not self._moves(access):
            return f"{self.names('buffer', access.buffer)}[{self._fixed(access)}]"
        return f"{self.pointer(access, writing=writing)}[{self._index(access)}]"

    def pointer(self, access: Access, *, writing: bool = False) -> str:
        """The identifier of a pointer to an access's element at lane position `start`."""
        if access not in self._pointers:
            number = len(self._pointers)
            name = self.names("pointer" + self._tag, f"{access.buffer}{self._tag}_{number}")
            constant = "" if writing else "const "
            base = f"{self.names('buffer', access.buffer)} + ({self._fixed(access)})"
            self.preamble.append(f"{constant}{STORED[access.dtype]}* const {name} = {base};")
            self._pointers[access] = name
        return self._pointers[access]

    def varies(self, name: str) -> bool:
        """Whether a value differs from lane to lane."""
        return bool(self.facts.depends[name] & self.group.names())

    def _moves(self, access: Access) -> bool:
        along = any(access.step(axis) for axis in self.group.names())
        return along or any(self.varies(name) for name in self.facts.indices(access))

    def _fixed(self, access: Access) -> str:
        """The part of an address that does not move within the vector loop."""
        extra = [
            (access.step(name), self.value(name))
            for name in self.facts.indices(access)
            if not self.varies(name)
        ]
        step = self.group.step(access)
        if step is not None:
            extra.append((step, self._start))
        return address(access, self._coordinates, extra)

    def _index(self, access: Access) -> str:
        """The part of an address that does."""
        step = self.group.step(access)
        terms: list[tuple[int, str]] = []
        if step is not None:
            terms.append((step, "j"))
        else:
            terms += [(access.step(a.name), self._coordinate(a.name)) for a in self.group.axes]
        for name in self.facts.indices(access):
            if self.varies(name):
                terms.append((access.step(name), self.value(name)))
        return " + ".join(t if s == 1 else f"{s} * {t}" for s, t in terms if s) or "0"

    def _coordinate(self, axis: str) -> str:
        if axis not in self.group.names():
            return self._coordinates.get(axis, "0")
        if len(self.group.axes) == 1:
            return "j" if self._start == "0" else f"({self._start} + j)"
        self.decodes = True
        return f"({self.group.coordinate(axis, 'at')})"

    def decoding(self) -> list[str]:
        """What a vector loop that divides its position into coordinates starts with."""
        if not self.decodes:
            return []
        # 32-bit division by a constant is a vector multiplication.
        type_ = "int32_t" if self.group.size < 1 << 31 else "int64_t"
        return [f"const {type_} at = {type_}({self._start} + j);"]


class ChunkBody:
    """The statements of one chunk.

    Args:
        plan: What the sweep does.
        labels: Identifiers.
        unit: Prints values at a position.
        lanes: C++ text of the vector loop's stride.
        length: C++ text of the chunk's length.
        start: C++ text of its first position in the lane group.
        stream: C++ text of whether stores go past the cache; "" for never.
    """

    def __init__(
        self,
        plan: SweepPlan,
        labels: Labels,
        unit: Unit,
        *,
        lanes: str,
        length: str,
        start: str,
        stream: str,
    ) -> None:
        self.plan, self.labels, self.unit = plan, labels, unit
        self.facts = plan.facts
        self.lanes, self.length, self.start, self.stream = lanes, length, start, stream

    def lines(self) -> list[str]:
        """Pointers, vector loops, and what happens between and after them."""
        stages = [self._stage(number) for number in range(len(self.plan.stages))]
        values = [self.unit.define(name) for name in self.plan.unit]
        fixed = [self.unit.write(store) for store, stage in self.plan.stores if stage < 0]
        if fixed and self.start != "0":
            fixed = [f"if ({self.start} == 0) {{", *indented(fixed), "}"]
        opened = [self._open(store) for store in self.streamed()]
        # Printing the stages has collected the pointers they use.
        lines = [*self._first(), *values, *self.unit.preamble, *fixed, *opened]
        for number, stage in enumerate(stages):
            lines += [*stage, *self._between(number)]
        return [*lines, *self._flush(), *self._folds()]

    def streamed(self) -> list[Store]:
        """Stores that may go past the cache: to consecutive elements."""
        if not self.stream:
            return []
        return [
            store
            for store, stage in self.plan.stores
            if stage >= 0
            and self.plan.group.step(store.access) == 1
            and not any(self.plan.is_lane(name) for name in self.facts.indices(store.access))
        ]

    def element(self, stmt: Stmt) -> str:
        """The C++ type that a reduction accumulates."""
        have = self.facts.type_of(stmt.args[0])
        return acc.element_type(stmt, have, self.facts.type_of(stmt.name))

    def _stage(self, stage: int) -> list[str]:
        body: list[str] = []
        for name, source in self.plan.stages[stage].items():
            if source == "computed":
                body += [self.unit.define(name), *self._keep(name, stage)]
            else:
                type_, value = self.facts.type_of(name), self.unit.value(name)
                body.append(f"const {type_} {value} = {self.labels.at(name)};")
        body += [*self._accumulate(stage), *self._scanned(stage)]
        body += [self._write(store) for store, at in self.plan.stores if at == stage]
        if not body:
            return []
        head = f"kw::lanes<{self.lanes}>({self.length}, [&](int64_t j, int l) {{"
        return [head, *indented([*self.unit.decoding(), *body]), "});"]

    def _keep(self, name: str, stage: int) -> list[str]:
        before = self.plan.stages[:stage]
        first = all(other.get(name) != "computed" for other in before)
        if first and (name in self.plan.chunked or name in self.labels.kept):
            return [f"{self.labels.at(name)} = {self.unit.value(name)};"]
        return []

    def _accumulate(self, stage: int) -> list[str]:
        lines = []
        for stmt, at in self.plan.reduces:
            name, want = stmt.args[0], self.element(stmt)
            text = acc.argument(stmt, self.unit.value(name), self.facts.type_of(name), want)
            if at == stage:
                extra = ", j" if stmt.reduce in acc.POSITIONED else ""
                lines.append(f"{self.labels.accumulator(stmt)}.add(l, {text}{extra});")
            if at + 1 == stage and stmt.reduce in TWO_STAGES:
                lines.append(f"{self.labels.accumulator(stmt)}.spread(l, {text});")
        return lines

    def _scanned(self, stage: int) -> list[str]:
        lines = []
        for stmt, at in self.plan.scans:
            if at == stage:
                have, want = self.facts.type_of(stmt.args[0]), self.facts.type_of(stmt.name)
                value = cast(self.unit.value(stmt.args[0]), have, want)
                lines.append(f"{self.labels.at(stmt.name)} = {value};")
        return lines

    def _between(self, stage: int) -> list[str]:
        """What needs the whole chunk before the next stage can run."""
        lines = [
            f"{self.labels.accumulator(stmt)}.settle({self.length});"
            for stmt, at in self.plan.reduces
            if at == stage and stmt.reduce in TWO_STAGES
        ]
        for stmt, at in self.plan.scans:
            if at == stage:
                at_first = " + first" if stmt.name in self.labels.kept else ""
                where = f"{self.labels.buffer(stmt.name)}{at_first}, {self.length}"
                operator, carry = acc.scan_operator(stmt), self.labels.carry(stmt)
                lines.append(f"kw::scan<{operator}>({where}, {carry});")
        return lines

    def _folds(self) -> list[str]:
        lines = []
        for stmt, _ in self.plan.reduces:
            given = self.length if stmt.reduce in TWO_STAGES else ""
            given = "first" if stmt.reduce in acc.POSITIONED else given
            lines.append(f"{self.labels.accumulator(stmt)}.fold({given});")
        return lines

    def _first(self) -> list[str]:
        """The row's position of the chunk's first element, where something needs it."""
        positioned = any(stmt.reduce in acc.POSITIONED for stmt, _ in self.plan.reduces)
        here = {name for stage in self.plan.stages for name in stage}
        here |= {stmt.name for stmt, _ in self.plan.scans}
        if not positioned and not here & self.labels.kept:
            return []
        names = {axis.name: self.labels.names("axis", axis.name) for axis in self.plan.leads}
        lead = linear(self.plan.leads, names.__getitem__)
        above = "" if lead == "0" else f"({lead}) * {self.plan.group.size} + "
        return [f"const int64_t first = {above}{self.start};"]

    def _open(self, store: Store) -> str:
        pointer = self.unit.pointer(store.access, writing=True)
        chosen = f"{self.stream} ? {self.labels.stage(store)} : {pointer}"
        return f"{STORED[store.access.dtype]}* const {self.labels.out(store)} = {chosen};"

    def _write(self, store: Store) -> str:
        if store not in self.streamed():
            return self.unit.write(store)
        self.unit.pointer(store.access, writing=True)
        return f"{self.labels.out(store)}[j] = {self.unit.converted(store)};"

    def _flush(self) -> list[str]:
        return [
            f"if constexpr ({self.stream}) kw::stream({self.unit.pointer(store.access)}, "
            f"{self.labels.stage(store)}, {self.length});"
            for store in self.streamed()
        ]


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one level deeper."""
    return [f"    {line}" for line in lines]
