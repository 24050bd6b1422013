"""What every C++ kernel shares (`Frame`), what a block of rows adds, and how a walk is printed.

A frame has the parameters, row-level statements and tunables; a block the names, types and
decisions of what it declares and keeps. `SweepPrinter` prints one planned walk over a row:
declarations, the loops around chunks, results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.accumulators import Labels
from kernelwright.tools.codegen.cpp.analysis import (
    Analysis,
    LaneGroup,
    decode,
    lane_group,
    shortened,
    without_single,
)
from kernelwright.tools.codegen.cpp.body import ChunkBody, Unit, indented
from kernelwright.tools.codegen.cpp.expressions import SIZE_BYTES, STORED, Names
from kernelwright.tools.codegen.cpp.sweep_plan import SweepPlan
from kernelwright.tools.codegen.ir import Axis, Loop, Stmt, Store, results
from kernelwright.tools.types import DType, Value


class Tunable(Value):
    """A `// tune:` line: values, the best guess first."""

    name: str
    values: tuple[int, ...]

    @property
    def line(self) -> str:
        """The declaration."""
        return f"// tune: {self.name} in {', '.join(map(str, self.values))}"


class Frame:
    """A loop on its way to becoming a kernel.

    Args:
        loop: The loop.
        prefix: What every function and tunable starts with.
    """

    def __init__(self, loop: Loop, prefix: str) -> None:
        self.loop = shortened(without_single(loop))
        self.facts = Analysis(self.loop)
        self.function = re.sub(r"\W", "_", prefix).strip("_").lower() or "kernel"
        self.names = Names(frozenset({self.function}))
        self.tunables: list[Tunable] = []
        self._buffers = self._parameters()

    def tune(self, name: str, values: Sequence[int]) -> str:
        """Declares a tunable and gives its macro; a single value needs none."""
        listed = tuple(dict.fromkeys(values))
        if len(listed) == 1:
            return str(listed[0])
        tunable = Tunable(name=f"{self.function.upper()}_{name}", values=listed)
        if tunable not in self.tunables:
            self.tunables.append(tunable)
        return tunable.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The plan's variables to pass, in order."""
        return tuple(self._buffers)

    def call(self) -> str:
        """The parameters' names, for one function of the kernel calling another."""
        return ", ".join(self.names("buffer", buffer) for buffer in self._buffers)

    def signature(self, *, exported: bool = False) -> str:
        """The parameter list. Inside, pointers are restrict: buffers of a plan do not overlap."""
        qualifier = "" if exported else " __restrict"
        return ", ".join(
            f"{'' if written else 'const '}{STORED[dtype]}*{qualifier} {self.names('buffer', name)}"
            for name, (dtype, written) in self._buffers.items()
        )

    def coordinates(self, axes: Sequence[Axis]) -> dict[str, str]:
        """Identifiers of coordinates, by axis."""
        return {axis.name: self.names("axis", axis.name) for axis in axes}

    def decoded(self, axes: Sequence[Axis], position: str) -> list[str]:
        """Statements that take a row-major position apart."""
        names = self.coordinates(axes)
        return [f"const int64_t {names[axis]} = {text};" for axis, text in decode(axes, position)]

    def row_values(self, sweep: int) -> list[str]:
        """Values that are the same for a whole row and known after `sweep` sweeps, in order."""
        facts = self.facts
        return [
            stmt.name
            for stmt in self.loop.body
            if stmt.op not in ("const", "reduce", "scan")
            and not facts.depends[stmt.name] & facts.inner
            and facts.sweep[stmt.name] == sweep
        ]

    def row_stores(self, sweep: int) -> list[Store]:
        """Stores of such values."""
        facts = self.facts
        return [
            store
            for store in self.loop.stores
            if not facts.is_element_store(store) and facts.store_sweep(store) == sweep
        ]

    def row_unit(self, outer: Mapping[str, str]) -> Unit:
        """A printer for the row itself."""
        return Unit(self.facts, self.names, LaneGroup(axes=()), outer, "0", "_row")

    def _parameters(self) -> dict[str, tuple[DType, bool]]:
        written = {store.access.buffer for store in self.loop.stores}
        return {
            access.buffer: (access.dtype, access.buffer in written)
            for access in self.facts.accesses()
        }


class Block:
    """A block of rows, one a lane.

    Attributes:
        leads: Outer axes outside of the vector loop.
        group: The outer axes of the vector loop.
        kept: Element-level values that a later sweep takes from a buffer.
        saved: Values of whole rows that later vector loops take from an array.
        prior: Element-level values that earlier sweeps computed.
    """

    def __init__(self, frame: Frame, width: str, *, keeping: bool) -> None:
        self.frame, self.width, self._keeping = frame, width, keeping
        self.facts: Analysis = frame.facts
        self.names = frame.names
        loop = frame.loop
        self.leads, self.group = lane_group(loop.outer, self.facts.accesses(), self.facts.indexed)
        self._outside = frozenset(axis.name for axis in self.leads)
        self.kept: set[str] = set()
        self.saved: set[str] = set()
        self.prior: set[str] = set()

    def is_worth_keeping(self, name: str) -> bool:
        """Whether an earlier sweep's value is kept rather than computed again."""
        costly = self.facts.is_costly(name, self._outside)
        return self._keeping and name in self.prior and costly

    def is_worth_saving(self, name: str) -> bool:
        """Whether a row's value is saved rather than computed again at every inner position."""
        load = self.facts.statements[name].op == "load"
        return not load and self.facts.is_costly(name, self._outside)

    def kept_bytes(self, width: int) -> int:
        """Size of the buffers of kept values at a width."""
        each = sum(SIZE_BYTES[self.facts.type_of(name)] for name in self.kept)
        return each * self.frame.loop.columns * width

    def declarations(self) -> list[str]:
        """Buffers for what is kept and saved."""
        columns = self.frame.loop.columns
        lines = [
            f"alignas(64) {self.facts.type_of(name)} {self._kept(name)}[{columns} * {self.width}];"
            for name in sorted(self.kept)
        ]
        lines += [
            f"alignas(64) {self.facts.type_of(name)} {self._saved(name)}[{self.width}];"
            for name in sorted(self.saved)
        ]
        return lines

    def kept_at(self, name: str) -> str:
        """The element of a kept value."""
        return f"{self._kept(name)}[first * {self.width} + j]"

    def saved_at(self, name: str) -> str:
        """The element of a row's saved value."""
        return f"{self._saved(name)}[j]"

    def accumulator(self, stmt: Stmt) -> str:
        """The identifier of a reduction's accumulator."""
        return self.names("accumulator", stmt.name, "_acc")

    def accumulator_declaration(self, stmt: Stmt) -> str:
        """The declaration of a reduction's accumulator."""
        type_ = acc.column_accumulator(stmt, self.element(stmt), self.width)
        return f"{type_} {self.accumulator(stmt)};"

    def element(self, stmt: Stmt) -> str:
        """The C++ type that a reduction accumulates."""
        have = self.facts.type_of(stmt.args[0])
        return acc.element_type(stmt, have, self.facts.type_of(stmt.name))

    def carry(self, stmt: Stmt, sweep: int) -> str:
        """The identifier of a scan's running values."""
        return self.names(f"carry{sweep}", stmt.name, "_carry")

    def carry_declaration(self, stmt: Stmt, sweep: int) -> str:
        """The declaration of a scan's running values."""
        carry = acc.carry_type(stmt, self.facts.type_of(stmt.name))
        operator = acc.scan_operator(stmt)
        return f"kw::Columns<{carry}, {operator}, {carry}, {self.width}> {self.carry(stmt, sweep)};"

    def _kept(self, name: str) -> str:
        return self.names("kept", name, "_kept")

    def _saved(self, name: str) -> str:
        return self.names("saved", name, "_saved")


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
