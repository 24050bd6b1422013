"""The body of a vector loop across rows, built by asking for the values it needs."""

from __future__ import annotations

from kernelwright.tools.codegen.cpp import accumulators as acc
from kernelwright.tools.codegen.cpp.block import Block
from kernelwright.tools.codegen.cpp.lanes import Unit
from kernelwright.tools.codegen.cpp.spelling import cast
from kernelwright.tools.codegen.ir import Stmt, Store


class ColumnLane:
    """The body of one vector loop, built by wanting values."""

    def __init__(self, block: Block, unit: Unit, sweep: int, *, rows_only: bool) -> None:
        self.block, self.unit, self.sweep = block, unit, sweep
        self.facts = block.facts
        self.rows_only = rows_only
        self.lines: list[str] = []
        self.scans: list[Stmt] = []
        self.computed: set[str] = set()
        self.positioned = False
        self._have: set[str] = set()

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
        for arg in self.facts.operands(stmt):
            self.want(arg)
        if stmt.op != "scan":
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
