"""What a block of neighbouring rows declares and keeps: names, types, decisions."""

from __future__ import annotations

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.analysis import Analysis
from kernelwright.tools.codegen.cpp.frame import Frame
from kernelwright.tools.codegen.cpp.geometry import lane_group
from kernelwright.tools.codegen.cpp.spelling import SIZE_BYTES
from kernelwright.tools.codegen.ir import Stmt


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
