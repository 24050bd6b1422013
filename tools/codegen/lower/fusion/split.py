"""Splitting a reduction in two: rows first, then over the rows.

A reduction over everything whose elements need a row's own statistics (a divergence between
softmaxes) can then happen where those statistics are made; only one number a row is stored.
It holds because sums, products, extrema, any and all may be grouped as one likes.
"""

from __future__ import annotations

from kernelwright.tools.codegen.lower.fusion.inline import replaced
from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.expr import Address, Expr, reachable
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write, where_of
from kernelwright.tools.codegen.lower.nests.views import at_axes
from kernelwright.tools.types import TensorSpec

GROUPABLE = frozenset({"sum", "prod", "max", "min", "any", "all"})


def row_axes(nest: Nest, statistics: frozenset[str]) -> tuple[str, ...]:
    """Inner axes along which row statistics are read; () where a split makes no sense.

    `statistics` names the buffers that other reductions make.
    """
    reductions = [expr for expr in nest.exprs if expr.op in ("reduce", "scan", "second")]
    if not all(expr.op == "reduce" and expr.word in GROUPABLE for expr in reductions):
        return ()
    if any(_nested(expr, reductions) for expr in reductions):
        return ()
    read = [where_of(load) for load in nest.loads if where_of(load).buffer in statistics]
    found = tuple(axis for axis in nest.inner if any(where.step(axis) for where in read))
    return found if 0 < len(found) < len(nest.inner) else ()


def _nested(expr: Expr, reductions: list[Expr]) -> bool:
    return any(other is not expr and other in reductions for other in reachable([expr]))


def split(context: Context, nest: Nest, rows: tuple[str, ...]) -> tuple[Nest, Nest]:
    """The two nests; the first keeps `rows` as outer axes."""
    outer, inner = nest.outer + rows, tuple(axis for axis in nest.inner if axis not in rows)
    writes: list[Write] = []
    loads: dict[Expr, Expr] = {}
    for expr in [expr for expr in nest.exprs if expr.op == "reduce"]:
        made = _rows_buffer(context, outer, expr)
        writes.append(Write(made, expr))
        loads[expr] = context.pool.make(
            "reduce", expr.dtype, (context.pool.load(made),), word=expr.word
        )
    second = replaced(context.ops, nest, loads)
    return Nest(outer, inner, tuple(writes)), Nest(nest.outer, rows, second.writes)


def _rows_buffer(context: Context, axes: tuple[str, ...], expr: Expr) -> Address:
    sizes = tuple(context.pool.sizes[axis] for axis in axes)
    made = context.buffer("rows", TensorSpec(shape=sizes, dtype=expr.dtype))
    return at_axes(made, [[(axis, size)] for axis, size in zip(axes, sizes, strict=True)])
