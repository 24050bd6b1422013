"""A reduction in two loops: partial results of segments of the first inner axis, then the rest.

For reductions across rows with too few columns to keep every core busy. Both loops are ordinary
ones of the intermediate form, so any strategy can print them; partial sums travel in double.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cpp.analysis import Analysis
from kernelwright.tools.codegen.cpp.geometry import without_single
from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, Stride
from kernelwright.tools.codegen.ir.dependence import statements_behind
from kernelwright.tools.types import DType, Value

_SEGMENT = "segment"
_MERGEABLE = frozenset(
    {
        ReduceKind.SUM,
        ReduceKind.PROD,
        ReduceKind.MAX,
        ReduceKind.MIN,
        ReduceKind.ANY,
        ReduceKind.ALL,
    }
)
MOST_SEGMENTS = 64


class Temporary(Value):
    """A buffer between the two loops, allocated by the plan."""

    name: str
    dtype: DType
    size: int


class Halves(Value):
    """The two loops and what lies between them."""

    first: Loop
    second: Loop
    temporaries: tuple[Temporary, ...]


def halved(loop: Loop, prefix: str, wanted: int) -> Halves:
    """The loop cut into about `wanted` segments.

    Raises:
        ValueError: When it does anything but reduce once, or its first inner axis has no divisor
            that would do.
    """
    loop = without_single(loop)
    facts = Analysis(loop)
    _check(facts)
    axis = loop.inner[0]
    segments = _segments(axis.size, wanted)
    temporaries = tuple(
        Temporary(name=f"{prefix}_{stmt.name}", dtype=_travels_as(stmt), size=segments * loop.rows)
        for stmt in facts.reductions
    )
    return Halves(
        first=_first(facts, axis, segments, temporaries),
        second=_second(facts, segments, temporaries),
        temporaries=temporaries,
    )


def _check(facts: Analysis) -> None:
    loop = facts.loop
    plain = all(stmt.reduce in _MERGEABLE for stmt in facts.reductions)
    once = all(facts.sweep[stmt.name] == 1 for stmt in facts.reductions)
    written = any(facts.is_element_store(store) for store in loop.stores)
    if facts.scans or written or not (plain and once and facts.reductions):
        raise ValueError(f"{loop.name}: only plain reductions have partial results")
    if loop.inner[0].name in facts.indexed:
        raise ValueError(f"{loop.name}: positions along the cut axis are values")


def _segments(size: int, wanted: int) -> int:
    fitting = [n for n in range(2, min(size, MOST_SEGMENTS) + 1) if size % n == 0]
    if not fitting:
        raise ValueError(f"{size} positions cannot be cut evenly")
    return min(fitting, key=lambda n: abs(n - wanted))


def _travels_as(stmt: Stmt) -> DType:
    summed = stmt.reduce in (ReduceKind.SUM, ReduceKind.PROD)
    return DType.FLOAT64 if stmt.dtype.is_floating and summed else stmt.dtype


def _rows(loop: Loop) -> tuple[Stride, ...]:
    """Row-major strides over the outer axes."""
    strides, below = [], 1
    for axis in reversed(loop.outer):
        strides.append(Stride(by=axis.name, step=below))
        below *= axis.size
    return tuple(reversed(strides))


def _place(loop: Loop, temporary: Temporary) -> Access:
    by_segment = Stride(by=_SEGMENT, step=loop.rows)
    strides = (by_segment, *_rows(loop))
    return Access(buffer=temporary.name, dtype=temporary.dtype, strides=strides)


def _first(facts: Analysis, axis: Axis, segments: int, temporaries: tuple[Temporary, ...]) -> Loop:
    """Partial results: the segment becomes an outer axis, and the cut axis gets shorter."""
    loop, each = facts.loop, axis.size // segments
    body = []
    for stmt in _needed(facts, [arg for r in facts.reductions for arg in r.args]):
        access = stmt.access
        if access is not None and access.step(axis.name):
            jump = Stride(by=_SEGMENT, step=access.step(axis.name) * each)
            access = access.model_copy(update={"strides": (*access.strides, jump)})
        body.append(stmt.model_copy(update={"access": access}))
    for stmt, temporary in zip(facts.reductions, temporaries, strict=True):
        body.append(stmt.model_copy(update={"dtype": temporary.dtype}))
    stores = tuple(
        Store(access=_place(loop, temporary), value=stmt.name)
        for stmt, temporary in zip(facts.reductions, temporaries, strict=True)
    )
    outer = (Axis(name=_SEGMENT, size=segments), *loop.outer)
    inner = (Axis(name=axis.name, size=each), *loop.inner[1:])
    return loop.model_copy(
        update={"outer": outer, "inner": inner, "body": tuple(body), "stores": stores}
    )


def _second(facts: Analysis, segments: int, temporaries: tuple[Temporary, ...]) -> Loop:
    """The whole results, and what is computed from them."""
    loop = facts.loop
    body: list[Stmt] = []
    for stmt, temporary in zip(facts.reductions, temporaries, strict=True):
        part, whole = f"{stmt.name}_part", f"{stmt.name}_whole"
        dtype = temporary.dtype
        access = _place(loop, temporary)
        body += [
            Stmt(name=part, op="load", dtype=dtype, access=access),
            Stmt(name=whole, op="reduce", dtype=dtype, args=(part,), reduce=stmt.reduce),
            Stmt(name=stmt.name, op="cast", dtype=stmt.dtype, args=(whole,)),
        ]
    wanted = [name for s in loop.stores for name in (s.value, *facts.indices(s.access))]
    reduced = {stmt.name for stmt in facts.reductions}
    body += [s for s in _needed(facts, wanted, frozenset(reduced)) if s.name not in reduced]
    inner = (Axis(name=_SEGMENT, size=segments),)
    return loop.model_copy(update={"inner": inner, "body": tuple(body)})


def _needed(
    facts: Analysis, names: list[str], known: frozenset[str] = frozenset()
) -> tuple[Stmt, ...]:
    """Statements that some values are computed from, in order, not looking behind `known`."""
    found = statements_behind(
        names, facts.statements, facts.operands, opened=lambda stmt: stmt.name not in known
    )
    return tuple(stmt for stmt in facts.loop.body if stmt.name in found)
