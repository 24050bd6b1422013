"""Prints one planned walk over a row: loops, chunks, stages, and the accumulators they fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from agents.playbook.cpp import accumulators as acc
from agents.playbook.cpp.analysis import Analysis
from agents.playbook.cpp.geometry import decode, linear
from agents.playbook.cpp.lanes import Unit
from agents.playbook.cpp.plan import TWO_STAGES, SweepPlan
from agents.playbook.cpp.spelling import SIZE_BYTES, STORED, Names, cast
from agents.playbook.ir import Stmt, Store, results
from tools.nouns import Value


class Knobs(Value):
    """C++ text of the tunables: numbers, or macros that hold them. `stream` is "" for never."""

    lanes: str
    chunk: str
    chunk_limit: int
    stream: str = ""


class SweepPrinter:
    """Prints one sweep.

    Args:
        plan: What the sweep does.
        names: Identifiers of the kernel.
        outer: C++ text of the outer axes' coordinates.
        knobs: Text of the tunables.
        kept: Values that live in row buffers.
    """

    def __init__(
        self,
        plan: SweepPlan,
        names: Names,
        outer: Mapping[str, str],
        knobs: Knobs,
        kept: frozenset[str],
    ) -> None:
        self.plan, self.names, self.knobs, self._kept = plan, names, knobs, kept
        self.facts: Analysis = plan.facts
        self.whole = plan.group.size <= knobs.chunk_limit
        self._chunk = str(plan.group.size) if self.whole else knobs.chunk
        self._leads = {axis.name: names("axis", axis.name) for axis in plan.leads}
        self._start = "0" if self.whole else "lane_start"
        self._tag = f"_{plan.number}"
        coordinates = {**outer, **self._leads}
        self._unit = Unit(self.facts, names, plan.group, coordinates, self._start, self._tag)

    @property
    def units(self) -> str:
        """C++ text of the number of units (chunks over all leading positions)."""
        return f"int64_t({prod(axis.size for axis in self.plan.leads)}) * {self._chunks}"

    def declarations(self) -> list[str]:
        """Accumulators, carries and buffers, which stand before the loops."""
        lines = [
            f"{acc.row_accumulator(stmt, self._element(stmt), self.knobs.lanes)} {self._acc(stmt)};"
            for stmt, _ in self.plan.reduces
        ]
        for stmt, _ in self.plan.scans:
            type_ = self.facts.type_of(stmt.name)
            carry = f"{acc.carry_type(stmt, type_)} {self._carry(stmt)}"
            start = f"{acc.scan_operator(stmt)}::start<{acc.carry_type(stmt, type_)}>()"
            lines.append(f"{carry} = {start};")
        chunked = [*(stmt.name for stmt, _ in self.plan.scans), *sorted(self.plan.chunked)]
        for name in dict.fromkeys(chunked):
            if name not in self._kept:
                type_ = self.facts.type_of(name)
                lines.append(f"alignas(64) {type_} {self._buffer(name)}[{self._chunk}];")
        for store in self._streamed():
            size = f"{self.knobs.stream} ? {self._chunk} : 1"
            lines.append(f"alignas(64) {STORED[store.access.dtype]} {self._stage(store)}[{size}];")
        return lines

    def nested(self) -> list[str]:
        """The whole sweep as nested loops."""
        lines = self._body()
        if not self.whole:
            size = self.plan.group.size
            head = f"for (int64_t lane_start = 0; lane_start < {size}; lane_start += {self._chunk})"
            lines = [f"{head} {{", *indented([self._length(), *lines]), "}"]
        for axis in reversed(self.plan.leads):
            at = self._leads[axis.name]
            head = f"for (int64_t {at} = 0; {at} < {axis.size}; ++{at}) {{"
            lines = [head, *indented(lines), "}"]
        return lines if self.plan.leads or not self.whole else ["{", *indented(lines), "}"]

    def ranged(self) -> list[str]:
        """The units from `from` to `to` of the sweep."""
        head = ["for (int64_t unit = from; unit < to; ++unit) {"]
        position = "unit" if self.whole else f"(unit / ({self._chunks}))"
        inside = [
            f"const int64_t {self._leads[name]} = {text};"
            for name, text in decode(self.plan.leads, position)
        ]
        if not self.whole:
            inside.append(
                f"const int64_t lane_start = unit % ({self._chunks}) * int64_t({self._chunk});"
            )
            inside.append(self._length())
        return [*head, *indented([*inside, *self._body()]), "}"]

    def results(self) -> list[tuple[str, str]]:
        """(value, expression) of every finished reduction."""
        return [
            (
                name,
                acc.result(stmt, name, f"{self._acc(stmt)}.total", self.facts.type_of(stmt.name)),
            )
            for stmt, _ in self.plan.reduces
            for name in results(stmt)
        ]

    def totals(self) -> list[tuple[Stmt, str, str]]:
        """(statement, C++ type of its total, C++ text of it) for combining segments."""
        listed = []
        for stmt, _ in self.plan.reduces:
            type_ = acc.row_accumulator(stmt, self._element(stmt), self.knobs.lanes)
            listed.append((stmt, f"decltype({type_}::total)", f"{self._acc(stmt)}.total"))
        return listed

    def carry(self, stmt: Stmt) -> str:
        """The identifier of a scan's carry."""
        return self._carry(stmt)

    def _body(self) -> list[str]:
        stages = [self._lanes_of(stage) for stage in range(len(self.plan.stages))]
        unit = [self._unit.define(name) for name in self.plan.unit]
        fixed = [self._unit.write(s) for s, stage in self.plan.stores if stage < 0]
        if fixed and not self.whole:
            fixed = ["if (lane_start == 0) {", *indented(fixed), "}"]
        opened = [self._open(store) for store in self._streamed()]
        # Pointers come first: printing the stages has collected them.
        lines = [*self._first(), *unit, *self._unit.preamble, *fixed, *opened]
        for number, stage in enumerate(stages):
            lines += [*stage, *self._between(number)]
        return [*lines, *self._flush(), *self._folds()]

    def _lanes_of(self, stage: int) -> list[str]:
        body: list[str] = []
        for name, source in self.plan.stages[stage].items():
            if source == "computed":
                body += [self._unit.define(name), *self._keep(name, stage)]
            else:
                type_ = self.facts.type_of(name)
                body.append(f"const {type_} {self._unit.value(name)} = {self._kept_at(name)};")
        body += self._accumulate(stage)
        body += [self._write(store) for store, at in self.plan.stores if at == stage]
        for stmt, at in self.plan.scans:
            if at == stage:
                value = self._unit.value(stmt.args[0])
                have, want = self.facts.type_of(stmt.args[0]), self.facts.type_of(stmt.name)
                body.append(f"{self._kept_at(stmt.name)} = {cast(value, have, want)};")
        if not body:
            return []
        body = [*self._unit.decoding(), *body]
        length = str(self.plan.group.size) if self.whole else "n"
        head = f"kw::lanes<{self.knobs.lanes}>({length}, [&](int64_t j, int l) {{"
        return [head, *indented(body), "});"]

    def _keep(self, name: str, stage: int) -> list[str]:
        first = all(self.plan.stages[s].get(name) != "computed" for s in range(stage))
        if first and (name in self.plan.chunked or name in self._kept):
            return [f"{self._kept_at(name)} = {self._unit.value(name)};"]
        return []

    def _kept_at(self, name: str) -> str:
        return f"{self._buffer(name)}[{'first + j' if name in self._kept else 'j'}]"

    def _accumulate(self, stage: int) -> list[str]:
        lines = []
        for stmt, at in self.plan.reduces:
            name, want = stmt.args[0], self._element(stmt)
            text = acc.argument(stmt, self._unit.value(name), self.facts.type_of(name), want)
            if at == stage:
                extra = ", j" if stmt.reduce in acc.POSITIONED else ""
                lines.append(f"{self._acc(stmt)}.add(l, {text}{extra});")
            if at + 1 == stage and stmt.reduce in TWO_STAGES:
                lines.append(f"{self._acc(stmt)}.spread(l, {text});")
        return lines

    def _between(self, stage: int) -> list[str]:
        length = str(self.plan.group.size) if self.whole else "n"
        lines = [
            f"{self._acc(stmt)}.settle({length});"
            for stmt, at in self.plan.reduces
            if at == stage and stmt.reduce in TWO_STAGES
        ]
        for stmt, at in self.plan.scans:
            if at == stage:
                row = self._buffer(stmt.name) + (" + first" if stmt.name in self._kept else "")
                call = f"kw::scan<{acc.scan_operator(stmt)}>({row}, {length}, {self._carry(stmt)});"
                lines.append(call)
        return lines

    def _folds(self) -> list[str]:
        length = str(self.plan.group.size) if self.whole else "n"
        lines = []
        for stmt, _ in self.plan.reduces:
            given = length if stmt.reduce in TWO_STAGES else ""
            given = "first" if stmt.reduce in acc.POSITIONED else given
            lines.append(f"{self._acc(stmt)}.fold({given});")
        return lines

    def _first(self) -> list[str]:
        """The row's position of the unit's first element, where something needs it."""
        positioned = any(stmt.reduce in acc.POSITIONED for stmt, _ in self.plan.reduces)
        here = {n for stage in self.plan.stages for n in stage} | {
            s.name for s, _ in self.plan.scans
        }
        if not positioned and not here & self._kept:
            return []
        lead = linear(self.plan.leads, self._leads.__getitem__)
        above = "" if lead == "0" else f"({lead}) * {self.plan.group.size} + "
        return [f"const int64_t first = {above}{self._start};"]

    def _streamed(self) -> list[Store]:
        """Stores that may go past the cache: to consecutive elements."""
        if not self.knobs.stream:
            return []
        return [
            store
            for store, stage in self.plan.stores
            if stage >= 0
            and self.plan.group.step(store.access) == 1
            and not any(self.plan.is_lane(name) for name in self.facts.indices(store.access))
        ]

    def _open(self, store: Store) -> str:
        type_ = STORED[store.access.dtype]
        pointer = self._unit.pointer(store.access, writing=True)
        chosen = f"{self.knobs.stream} ? {self._stage(store)} : {pointer}"
        return f"{type_}* const {self._out(store)} = {chosen};"

    def _write(self, store: Store) -> str:
        if store in self._streamed():
            self._unit.pointer(store.access, writing=True)
            return f"{self._out(store)}[j] = {self._unit.converted(store)};"
        return self._unit.write(store)

    def _flush(self) -> list[str]:
        length = str(self.plan.group.size) if self.whole else "n"
        lines = []
        for store in self._streamed():
            pointer = self._unit.pointer(store.access)
            copy = f"kw::stream({pointer}, {self._stage(store)}, {length});"
            lines.append(f"if constexpr ({self.knobs.stream}) {copy}")
        return lines

    @property
    def _chunks(self) -> str:
        if self.whole:
            return "1"
        size = self.plan.group.size
        return f"(({size} + {self._chunk} - 1) / {self._chunk})"

    def _length(self) -> str:
        size = self.plan.group.size
        rest = f"{size} - lane_start"
        return f"const int64_t n = {rest} < {self._chunk} ? {rest} : int64_t({self._chunk});"

    def _element(self, stmt: Stmt) -> str:
        have = self.facts.type_of(stmt.args[0])
        return acc.element_type(stmt, have, self.facts.type_of(stmt.name))

    def _acc(self, stmt: Stmt) -> str:
        return self.names("accumulator", stmt.name, "_acc")

    def _carry(self, stmt: Stmt) -> str:
        return self.names("carry" + self._tag, stmt.name, "_carry")

    def _buffer(self, name: str) -> str:
        if name in self._kept:
            return self.names("kept", name, "_kept")
        return self.names("chunk" + self._tag, name, "_chunk")

    def _stage(self, store: Store) -> str:
        return self.names("stage" + self._tag, self._label(store), "_stage")

    def _out(self, store: Store) -> str:
        return self.names("out" + self._tag, self._label(store), "_out")

    def _label(self, store: Store) -> str:
        """A buffer may be stored to twice, at different places."""
        same = [s for s in self.facts.loop.stores if s.access.buffer == store.access.buffer]
        number = same.index(store)
        return store.access.buffer if number == 0 else f"{store.access.buffer}_{number}"


def kept_values(plans: Sequence[SweepPlan]) -> frozenset[str]:
    """Values that sweeps hand on to later ones through row buffers."""
    return frozenset(name for plan in plans for name in plan.taken)


def kept_bytes(facts: Analysis, kept: frozenset[str], columns: int) -> int:
    """Size of the row buffers."""
    return sum(SIZE_BYTES[facts.type_of(name)] * columns for name in kept)


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one level deeper."""
    return [f"    {line}" for line in lines]
