"""Positions that reads compute: what they can be, and reads that may lie outside.

Integer expressions of axes are known as affine forms and as ranges. Comparisons and clamps that
hold for every position of a nest are decided here. Not here: values read from memory, which can be
anything.

A read that may lie outside is made on a condition, instead of clamping its position and choosing.
Padding is translated as `where(inside, x[clamped position], fill)`, which every other rewrite
understands. In the end, where `inside` holds exactly what the clamping needs, the read becomes one
at the plain position, on that condition: its address is then affine again, so a window's reads
share one base and differ by constants, and no integer arithmetic stands before each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from kernelwright.tools.codegen.lower.nests.expressions import (
    Affine,
    Expr,
    Pool,
    Term,
    address,
    reachable,
)
from kernelwright.tools.codegen.lower.nests.nest import Nest, where_of
from kernelwright.tools.codegen.lower.nests.simplify import Ops

Range = tuple[int, int]


def affine_of(pool: Pool, position: Expr) -> Affine | None:
    """A position that was written as an expression, as offset and terms again."""
    if position.op == "const" and isinstance(position.value, int):
        return Affine(position.value)
    if position.op == "index":
        return Affine(0, (Term(position.word, 1, pool.sizes[position.word]),))
    if position.op not in ("add", "sub", "mul"):
        return None
    left, right = (affine_of(pool, arg) for arg in position.args)
    if left is None or right is None:
        return None
    if position.op == "mul":
        left, right = (right, left) if not left.terms else (left, right)
        return None if right.terms else _times(left, right.offset)
    right = _times(right, -1) if position.op == "sub" else right
    return Affine(left.offset + right.offset, (*left.terms, *right.terms))


def _times(affine: Affine, factor: int) -> Affine:
    terms = (Term(term.by, term.step * factor, term.size) for term in affine.terms)
    return Affine(affine.offset * factor, tuple(terms))


def decided(ops: Ops, expr: Expr) -> Expr:
    """A comparison or a clamp of positions as what it always gives; else the expression itself."""
    if len(expr.args) != 2 or expr.args[1].op != "const":
        return expr
    limit, reach = expr.args[1].value, _range(ops.pool, expr.args[0])
    if reach is None or not isinstance(limit, int):
        return expr
    low, high = reach
    if expr.op == "maximum":
        return expr.args[0] if low >= limit else expr.args[1] if high <= limit else expr
    if expr.op == "minimum":
        return expr.args[0] if high <= limit else expr.args[1] if low >= limit else expr
    answer = _compared(expr.op, low, high, limit)
    return expr if answer is None else ops.pool.const(answer, expr.dtype)


def _compared(op: str, low: int, high: int, limit: int) -> bool | None:
    if op in ("lt", "ge"):
        below = True if high < limit else False if low >= limit else None
        return below if op == "lt" or below is None else not below
    if op in ("le", "gt"):
        below = True if high <= limit else False if low > limit else None
        return below if op == "le" or below is None else not below
    if op in ("eq", "ne"):
        same = True if low == high == limit else False if not low <= limit <= high else None
        return same if op == "eq" or same is None else not same
    return None


def _range(pool: Pool, expr: Expr) -> Range | None:
    """The least and the largest value of an affine position."""
    place = affine_of(pool, expr)
    if place is None:
        return None
    ends = [term.step * (term.size - 1) for term in place.terms]
    low = place.offset + sum(min(0, end) for end in ends)
    return low, place.offset + sum(max(0, end) for end in ends)


def guarded(ops: Ops, nest: Nest) -> Nest:
    """The nest with every read that a condition keeps inside made on that condition."""

    def change(expr: Expr) -> Expr | None:
        return _chosen(ops, expr) if expr.op == "where" else None

    values = ops.rebuild([write.value for write in nest.writes], change)
    writes = (type(w)(w.address, value) for w, value in zip(nest.writes, values, strict=True))
    return Nest(nest.outer, nest.inner, tuple(writes))


def _chosen(ops: Ops, choice: Expr) -> Expr | None:
    """A `where` whose first branch reads under its condition; None where nothing changes."""
    condition, then, other = choice.args
    known = set(_conjuncts(condition))
    new = {
        load: found
        for load in reachable([then])
        if load.op == "load" and (found := _plain(ops, load, known)) is not None
    }
    if not new or any(expr.op in ("reduce", "scan") for expr in reachable([then])):
        return None
    (inner,) = ops.rebuild([then], new.get)
    return ops("where", condition, inner, other)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if condition.op == "logical_and":
        for arg in condition.args:
            yield from _conjuncts(arg)
    else:
        yield condition


def _plain(ops: Ops, load: Expr, known: set[Expr]) -> Expr | None:
    """The read at its plain position on the conditions that it needs; None where it cannot be."""
    where, needed = where_of(load), list[Expr]()
    if load.args:
        return None
    offset, terms = where.offset, list[Term]()
    for term in where.terms:
        if isinstance(term.by, str):
            terms.append(term)
            continue
        position = _unclamped(term.by, term.size)
        affine = None if position is None else affine_of(ops.pool, position)
        if position is None or affine is None:
            return None
        conditions = _conditions(ops, term.by, position, term.size)
        if not set(conditions) <= known:
            return None
        needed += conditions
        offset += term.step * affine.offset
        terms += [Term(t.by, t.step * term.step, t.size) for t in affine.terms]
    if not needed:
        return None
    condition = reduce(lambda a, b: ops("logical_and", a, b), dict.fromkeys(needed))
    place = address(where.buffer, where.dtype, offset, terms)
    return ops.pool.make("load", load.dtype, (condition,), address=place)


def _unclamped(by: Expr, size: int) -> Expr | None:
    """The position under `minimum(maximum(position, 0), size - 1)`, either of which may lack."""
    if by.op == "minimum" and _is(by.args[1], size - 1):
        by = by.args[0]
        return by.args[0] if by.op == "maximum" and _is(by.args[1], 0) else by
    return by.args[0] if by.op == "maximum" and _is(by.args[1], 0) else None


def _conditions(ops: Ops, by: Expr, position: Expr, size: int) -> list[Expr]:
    """What must hold for the clamping to change nothing."""
    found = []
    if "maximum" in (by.op, by.args[0].op):
        found.append(ops("ge", position, 0))
    if by.op == "minimum":
        found.append(ops("lt", position, size))
    return found


def _is(expr: Expr, value: int) -> bool:
    return expr.op == "const" and expr.value == value
