"""The prelude's accumulators: which one a reduction or scan uses, and how it is spelt."""

from collections.abc import Mapping

from kernelwright.tools.codegen.cpp.spelling import cast
from kernelwright.tools.codegen.ir import ReduceKind, Stmt

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
