"""What values depend on is read off a loop's body alone."""

from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, Stride
from kernelwright.tools.codegen.ir.loops import (
    axis_names,
    by_falling_stride,
    operands,
    statements_behind,
    varies_along,
    walked_as_one,
    walks_before,
    without_unread,
)
from kernelwright.tools.types import DType

F = DType.FLOAT32


def access(buffer: str, **steps: int) -> Access:
    strides = tuple(Stride(by=by, step=step) for by, step in steps.items())
    return Access(buffer=buffer, dtype=F, strides=strides)


LOOP = Loop(
    name="gathered",
    outer=(Axis(name="r", size=4),),
    inner=(Axis(name="c", size=8),),
    body=(
        Stmt(name="at", op="load", dtype=DType.INT64, access=access("i", r=1)),
        Stmt(name="x", op="load", dtype=F, access=access("t", at=8, c=1)),
        Stmt(name="run", op="scan", dtype=F, args=("x",), scan="sum"),
        Stmt(name="top", op="reduce", dtype=F, args=("run",), reduce=ReduceKind.MAX),
        Stmt(name="unread", op="exp", dtype=F, args=("x",)),
        Stmt(name="y", op="sub", dtype=F, args=("x", "top")),
    ),
    stores=(Store(access=access("y", r=8, c=1), value="y"),),
)


def test_values_vary_along_the_axes_of_what_they_read() -> None:
    found = varies_along(LOOP)
    assert found["at"] == {"r"}
    assert found["x"] == found["run"] == found["y"] == {"r", "c"}
    assert found["top"] == {"r"}


def test_a_running_value_costs_no_walk_where_a_row_is_walked_in_order() -> None:
    assert walks_before(LOOP) == {"at": 0, "x": 0, "run": 0, "top": 1, "unread": 0, "y": 1}
    assert LOOP.passes()["run"] == 1


def test_what_lies_behind_a_value_is_found_through_indirect_reads() -> None:
    statements = {stmt.name: stmt for stmt in LOOP.body}
    axes = axis_names(LOOP)

    def behind(*names: str, closed: str = "") -> set[str]:
        return statements_behind(
            names, statements, lambda s: operands(s, axes), opened=lambda s: s.name != closed
        )

    assert behind("x") == {"x", "at"}
    assert behind("y", closed="top") == {"y", "top", "x", "at"}


def test_statements_that_nothing_reads_go() -> None:
    assert [stmt.name for stmt in without_unread(LOOP).body] == ["at", "x", "run", "top", "y"]


def test_the_contiguous_axis_comes_last_and_what_stands_still_first() -> None:
    steps = {"a": 1, "b": -32, "c": 0}
    assert by_falling_stride("abc", [lambda axis: steps[axis]]) == ["c", "b", "a"]
    assert walked_as_one(32, 4, 8)
    assert not walked_as_one(32, 4, 9)
