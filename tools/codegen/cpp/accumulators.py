"""The prelude's accumulators: which one a reduction or scan uses, and how it is spelt.

Also the identifiers of what a sweep declares: accumulators, carries, buffers, staged outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.tools.codegen.cpp.analysis import Analysis
from kernelwright.tools.codegen.cpp.expressions import Names, cast
from kernelwright.tools.codegen.ir import ReduceKind, Stmt, Store


class Labels:
    """Names for one sweep; buffers in `kept` are shared by all sweeps of a row."""

    def __init__(self, facts: Analysis, names: Names, kept: frozenset[str], tag: str) -> None:
        self.facts, self.names, self.kept, self.tag = facts, names, kept, tag

    def accumulator(self, stmt: Stmt) -> str:
        """Of a reduction."""
        return self.names("accumulator", stmt.name, "_acc")

    def carry(self, stmt: Stmt) -> str:
        """Of what a scan hands from one chunk to the next."""
        return self.names("carry" + self.tag, stmt.name, "_carry")

    def buffer(self, name: str) -> str:
        """Of the buffer that keeps a value for its row or chunk."""
        if name in self.kept:
            return self.names("kept", name, "_kept")
        return self.names("chunk" + self.tag, name, "_chunk")

    def at(self, name: str) -> str:
        """The element of a kept value at the vector loop's position."""
        return f"{self.buffer(name)}[{'first + j' if name in self.kept else 'j'}]"

    def stage(self, store: Store) -> str:
        """Of the buffer that a streamed store goes through."""
        return self.names("stage" + self.tag, self._target(store), "_stage")

    def out(self, store: Store) -> str:
        """Of the pointer that a store that may be streamed writes through."""
        return self.names("out" + self.tag, self._target(store), "_out")

    def _target(self, store: Store) -> str:
        """A buffer may be stored to twice, at different places."""
        same = [s for s in self.facts.loop.stores if s.access.buffer == store.access.buffer]
        number = same.index(store)
        return store.access.buffer if number == 0 else f"{store.access.buffer}_{number}"


_ROW: Mapping[ReduceKind, str] = {
    ReduceKind.SUM: "Sum",
    ReduceKind.PROD: "Prod",
    ReduceKind.MAX: "Max",
    ReduceKind.MIN: "Min",
    ReduceKind.ANY: "Any",
    ReduceKind.ALL: "All",
    ReduceKind.ARGMAX: "ArgMax",
    ReduceKind.ARGMIN: "ArgMin",
    ReduceKind.MOMENTS: "Moments",
    ReduceKind.SOFTMAX: "Softmax",
}
_ON_FLAGS = (ReduceKind.ANY, ReduceKind.ALL)
POSITIONED = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
_SECOND: Mapping[ReduceKind, str] = {ReduceKind.MOMENTS: "m2", ReduceKind.SOFTMAX: "sum"}
_SCANS: Mapping[str, str] = {"sum": "SumOf", "prod": "ProdOf", "max": "MaxOf", "min": "MinOf"}


def kind_of(stmt: Stmt) -> ReduceKind:
    """The kind of a reduction; ValueError for a statement that says none."""
    if stmt.reduce is None:
        raise ValueError(f"reduction {stmt.name!r} does not say what it keeps")
    return stmt.reduce


def element_type(stmt: Stmt, argument: str, result: str) -> str:
    """The C++ type that a reduction's values are accumulated in."""
    if kind_of(stmt) in _ON_FLAGS:
        return "uint8_t"
    if kind_of(stmt) in POSITIONED:
        return "int64_t" if argument == "bool" else argument
    return "int64_t" if result == "bool" else result


def argument(stmt: Stmt, text: str, have: str, want: str) -> str:
    """An argument in the accumulator's type."""
    if kind_of(stmt) in _ON_FLAGS:
        return f"uint8_t({cast(text, have, 'bool')})"
    return cast(text, have, want)


def row_accumulator(stmt: Stmt, type_: str, lanes: str) -> str:
    """The C++ type of an accumulator along a row."""
    return f"kw::{_ROW[kind_of(stmt)]}<{type_}, {lanes}>"


def column_accumulator(stmt: Stmt, type_: str, width: str) -> str:
    """The C++ type of an accumulator for neighbouring columns."""
    return f"kw::Column{_ROW[kind_of(stmt)]}<{type_}, {width}>"


def result(stmt: Stmt, name: str, total: str, type_: str, column: str = "") -> str:
    """The value of a finished reduction (`name` may be its second result)."""
    method = "value" if name == stmt.name else _SECOND[kind_of(stmt)]
    return f"{type_}({total}.{method}({column}))"


def scan_operator(stmt: Stmt) -> str:
    """The prelude's operation of a scan."""
    if stmt.scan is None:
        raise ValueError(f"scan {stmt.name!r} does not say what it runs")
    return f"kw::{_SCANS[stmt.scan]}"


def carry_type(stmt: Stmt, type_: str) -> str:
    """What a scan carries from one element to the next: sums and products of floats in double."""
    return f"kw::Wide<{type_}>" if stmt.scan in ("sum", "prod") else type_
