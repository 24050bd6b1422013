"""Prints one planned walk over a row: declarations, the loops around chunks, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.accumulators import Labels
from kernelwright.tools.codegen.cpp.analysis import Analysis, decode
from kernelwright.tools.codegen.cpp.body import ChunkBody, Unit, indented
from kernelwright.tools.codegen.cpp.expressions import SIZE_BYTES, STORED, Names
from kernelwright.tools.codegen.cpp.sweep_plan import SweepPlan
from kernelwright.tools.codegen.ir import Stmt, results
from kernelwright.tools.types import Value


class Knobs(Value):
    """C++ text of the tunables: numbers, or macros that hold them.

    Lane groups of at most `chunk_limit` positions are one chunk. `parts` is how many pieces the
    work is cut into for threads to take as they come free. `stream` is "" for never.
    """

    lanes: str
    chunk: str
    chunk_limit: int
    parts: str
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
        self.plan, self.knobs = plan, knobs
        self.facts: Analysis = plan.facts
        self.labels = Labels(plan.facts, names, kept, f"_{plan.number}")
        self._whole = plan.group.size <= knobs.chunk_limit
        self._chunk = str(plan.group.size) if self._whole else knobs.chunk
        self._leads = {axis.name: names("axis", axis.name) for axis in plan.leads}
        start = "0" if self._whole else "lane_start"
        coordinates = {**outer, **self._leads}
        unit = Unit(self.facts, names, plan.group, coordinates, start, self.labels.tag)
        length = str(plan.group.size) if self._whole else "n"
        self._body = ChunkBody(
            plan,
            self.labels,
            unit,
            lanes=knobs.lanes,
            length=length,
            start=start,
            stream=knobs.stream,
        )

    @property
    def units(self) -> str:
        """C++ text of the number of units (chunks over all leading positions)."""
        return f"int64_t({prod(axis.size for axis in self.plan.leads)}) * {self._chunks}"

    def declarations(self) -> list[str]:
        """Accumulators, carries and buffers, which stand before the loops."""
        lines = [f"{type_} {self.labels.accumulator(s)};" for s, type_ in self._accumulators()]
        for stmt, _ in self.plan.scans:
            carry = acc.carry_type(stmt, self.facts.type_of(stmt.name))
            start = f"{acc.scan_operator(stmt)}::start<{carry}>()"
            lines.append(f"{carry} {self.labels.carry(stmt)} = {start};")
        chunked = [*(stmt.name for stmt, _ in self.plan.scans), *sorted(self.plan.chunked)]
        for name in dict.fromkeys(chunked):
            if name not in self.labels.kept:
                type_, buffer = self.facts.type_of(name), self.labels.buffer(name)
                lines.append(f"alignas(64) {type_} {buffer}[{self._chunk}];")
        for store in self._body.streamed():
            size = f"{self.knobs.stream} ? {self._chunk} : 1"
            type_ = STORED[store.access.dtype]
            lines.append(f"alignas(64) {type_} {self.labels.stage(store)}[{size}];")
        return lines

    def nested(self) -> list[str]:
        """The whole sweep as nested loops."""
        lines = self._body.lines()
        if not self._whole:
            size = self.plan.group.size
            head = f"for (int64_t lane_start = 0; lane_start < {size}; lane_start += {self._chunk})"
            lines = [f"{head} {{", *indented([self._length(), *lines]), "}"]
        for axis in reversed(self.plan.leads):
            at = self._leads[axis.name]
            head = f"for (int64_t {at} = 0; {at} < {axis.size}; ++{at}) {{"
            lines = [head, *indented(lines), "}"]
        return lines if self.plan.leads or not self._whole else ["{", *indented(lines), "}"]

    def ranged(self) -> list[str]:
        """The units from `from` to `to` of the sweep."""
        lines = self._body.lines()
        position = "unit" if self._whole else f"(unit / {self._chunks})"
        inside = [
            f"const int64_t {self._leads[name]} = {text};"
            for name, text in decode(self.plan.leads, position)
        ]
        if not self._whole:
            start = f"unit % {self._chunks} * int64_t({self._chunk})"
            inside += [f"const int64_t lane_start = {start};", self._length()]
        head = "for (int64_t unit = from; unit < to; ++unit) {"
        return [head, *indented([*inside, *lines]), "}"]

    def results(self) -> list[tuple[str, str]]:
        """(value, expression) of every finished reduction."""
        return [
            (name, acc.result(stmt, name, self._total(stmt), self.facts.type_of(name)))
            for stmt, _ in self.plan.reduces
            for name in results(stmt)
        ]

    def totals(self) -> list[tuple[Stmt, str, str]]:
        """(statement, C++ type of its total, C++ text of it) for combining segments."""
        return [
            (stmt, f"decltype({type_}::total)", self._total(stmt))
            for stmt, type_ in self._accumulators()
        ]

    def _accumulators(self) -> list[tuple[Stmt, str]]:
        lanes = self.knobs.lanes
        return [
            (stmt, acc.row_accumulator(stmt, self._body.element(stmt), lanes))
            for stmt, _ in self.plan.reduces
        ]

    def _total(self, stmt: Stmt) -> str:
        return f"{self.labels.accumulator(stmt)}.total"

    @property
    def _chunks(self) -> str:
        if self._whole:
            return "1"
        return f"(({self.plan.group.size} + {self._chunk} - 1) / {self._chunk})"

    def _length(self) -> str:
        rest = f"{self.plan.group.size} - lane_start"
        return f"const int64_t n = {rest} < {self._chunk} ? {rest} : int64_t({self._chunk});"


def kept_values(plans: Sequence[SweepPlan]) -> frozenset[str]:
    """Values that sweeps hand on to later ones through row buffers."""
    return frozenset(name for plan in plans for name in plan.taken)


def kept_bytes(facts: Analysis, kept: frozenset[str], columns: int) -> int:
    """Size of the row buffers."""
    return sum(SIZE_BYTES[facts.type_of(name)] * columns for name in kept)
