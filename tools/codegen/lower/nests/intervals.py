"""What positions can be: integer expressions of axes as affine forms and as ranges.

Comparisons and clamps that hold for every position of a nest are decided here. Not here: values
read from memory, which can be anything.
"""

from __future__ import annotations

from kernelwright.tools.codegen.lower.nests.expr import Affine, Expr, Pool, Term
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
