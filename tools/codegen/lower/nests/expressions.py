"""Expressions as a shared, hash-consed graph: what a nest computes, before it becomes statements.

Two equal expressions are one object, so common subexpressions vanish by construction and
dead ones are never reached. An expression's number grows with its creation, so sorting by it
is a topological order and no walk needs recursion, however long a chain of operators is.

Bounds that hold for every value of an expression, NaN apart, tell idle operators: `relu` of
something never negative, a clamp behind a tighter clamp, a hard tanh of a tanh. Each gives its
argument back, bit for bit, NaN included. What is not known here has no bounds.

Not here: which identities hold (`simplify`), and iteration spaces (`nest`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from kernelwright.tools.types import DType

Number = bool | int | float

# A value of these types wraps when it is stored, so it has to be read back.
NARROW = frozenset({DType.INT32, DType.INT16, DType.INT8, DType.UINT8})


# Nothing changes one; frozen, each of the hundreds of thousands would take three times as long.
@dataclass(slots=True, eq=False)
class Expr:
    """One value at one position of an iteration space.

    `op` is as in `ir.Stmt`; `word` is the axis of an `index`, the kind of a `reduce` or a
    `scan`. A `second` is the other result of its argument, a `moments` or `softmax` reduction.
    `parents` are what it needs: its arguments and the indices of an indirect load.
    """

    number: int
    op: str
    dtype: DType
    args: tuple[Expr, ...]
    value: Number | None
    address: Address | None
    word: str
    parents: tuple[Expr, ...]


# Positions are named tuples: lowering a network makes and looks up hundreds of thousands of them.
class Term(NamedTuple):
    """`step` elements for every step of `by`: an axis, or an integer expression below `size`."""

    by: str | Expr
    step: int
    size: int


class Affine(NamedTuple):
    """An index: offset + sum of step x by."""

    offset: int
    terms: tuple[Term, ...] = ()


class Address(NamedTuple):
    """A position in a buffer, in elements. Made by `address`, which orders the terms."""

    buffer: str
    dtype: DType
    offset: int
    terms: tuple[Term, ...]

    def step(self, axis: str) -> int:
        """Elements moved by one step along an axis."""
        return next((term.step for term in self.terms if term.by == axis), 0)

    @property
    def axes(self) -> frozenset[str]:
        """The axes that it varies with directly."""
        return frozenset(term.by for term in self.terms if isinstance(term.by, str))


def address(buffer: str, dtype: DType, offset: int, terms: Iterable[Term]) -> Address:
    """An Address in its one normal form: like terms collected, those that do not move dropped."""
    steps: dict[str | Expr, Term] = {}
    for term in terms:
        known = steps.get(term.by)
        steps[term.by] = Term(term.by, term.step + known.step, term.size) if known else term
    kept = [term for term in steps.values() if term.step and term.size > 1]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Address(buffer, dtype, offset, tuple(kept))


def _order(term: Term) -> tuple[int, int, str]:
    return (1, term.by.number, "") if isinstance(term.by, Expr) else (0, 0, term.by)


class Pool:
    """Makes expressions and axes; one for each lowering, so that nothing outlives it."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._known: dict[tuple[object, ...], Expr] = {}

    def axis(self, size: int) -> str:
        """A new axis of that size."""
        name = f"a{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def make(
        self,
        op: str,
        dtype: DType,
        args: tuple[Expr, ...] = (),
        *,
        value: Number | None = None,
        address: Address | None = None,
        word: str = "",
    ) -> Expr:
        """The one expression of that description, as it stands (nothing is simplified)."""
        # repr tells 0.0 from -0.0, 1 from True, and makes NaN equal to itself.
        described = None if value is None else repr(value)
        key = (op, dtype, args, described, address, word)
        found = self._known.get(key)
        if found is None:
            parents = args if address is None else args + _indices(address)
            found = Expr(len(self._known), op, dtype, args, value, address, word, parents)
            self._known[key] = found
        return found

    def const(self, value: Number, dtype: DType) -> Expr:
        """A constant, its value in the kind of `dtype`."""
        if dtype is DType.BOOL:
            return self.make("const", dtype, value=bool(value))
        return self.make("const", dtype, value=float(value) if dtype.is_floating else int(value))

    def load(self, where: Address) -> Expr:
        """A read, in the type that is computed in."""
        return self.make("load", computed(where.dtype), address=where)

    def index(self, axis: str) -> Expr:
        """The position along an axis."""
        return self.make("index", DType.INT64, word=axis)


def _indices(where: Address) -> tuple[Expr, ...]:
    return tuple(term.by for term in where.terms if isinstance(term.by, Expr))


def computed(dtype: DType) -> DType:
    """The type that values of `dtype` are computed in, as PyTorch's own kernels do."""
    if dtype in (DType.FLOAT64, DType.BOOL):
        return dtype
    return DType.FLOAT32 if dtype.is_floating else DType.INT64


def reachable(roots: Iterable[Expr]) -> list[Expr]:
    """Everything that `roots` depend on and the roots themselves, in topological order."""
    seen: set[Expr] = set()
    todo = list(roots)
    while todo:
        expr = todo.pop()
        if expr not in seen:
            seen.add(expr)
            todo += expr.parents
    return sorted(seen, key=attrgetter("number"))


Change = Callable[[Expr], Expr | None]


def rebuild(
    pool: Pool,
    roots: Sequence[Expr],
    change: Change,
    make: Callable[[Expr], Expr] | None = None,
    exprs: Iterable[Expr] | None = None,
) -> list[Expr]:
    """The roots with every expression that `change` answers for replaced by its answer.

    `change` sees original expressions; what it answers is taken as it is. `make` may simplify
    an expression whose arguments have changed. `exprs` are what is `reachable` from the roots,
    where somebody knows that already.
    """
    new: dict[Expr, Expr] = {}
    changed = new.keys()
    for expr in reachable(roots) if exprs is None else exprs:
        answer = change(expr)
        if answer is None:
            if changed.isdisjoint(expr.parents):
                continue
            answer = _with_parents(pool, expr, new)
            if make is not None and answer is not expr:
                answer = make(answer)
        if answer is not expr:
            new[expr] = answer
    return [new.get(root, root) for root in roots]


def _with_parents(pool: Pool, expr: Expr, new: dict[Expr, Expr]) -> Expr:
    args = tuple(new.get(arg, arg) for arg in expr.args)
    where = expr.address
    if where is not None:
        terms = [_renewed(term, new) for term in where.terms]
        where = address(where.buffer, where.dtype, where.offset, terms)
    return pool.make(expr.op, expr.dtype, args, value=expr.value, address=where, word=expr.word)


def _renewed(term: Term, new: dict[Expr, Expr]) -> Term:
    by = term.by
    return Term(new.get(by, by), term.step, term.size) if isinstance(by, Expr) else term


def place(where: Address, positions: dict[str, Affine]) -> Address:
    """The address with axes replaced by affine positions."""
    offset, terms = where.offset, []
    for term in where.terms:
        at = positions.get(term.by) if isinstance(term.by, str) else None
        if at is None:
            terms.append(term)
        else:
            offset += term.step * at.offset
            terms += [Term(t.by, t.step * term.step, t.size) for t in at.terms]
    return address(where.buffer, where.dtype, offset, terms)


_NEVER_NEGATIVE = frozenset({"exp", "exp2", "square", "abs", "sqrt", "relu", "cosh"})
_WITHIN = {
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "erfc": (0.0, 2.0),
}
_ANY = (-math.inf, math.inf)
# A longer chain than this is not looked through: every operator asks once.
DEPTH = 6


def bounds(expr: Expr, depth: int = DEPTH) -> tuple[float, float]:
    """The least and the largest value that an expression can have, if it is no NaN."""
    if expr.op == "const" and expr.value is not None and not math.isnan(expr.value):
        return float(expr.value), float(expr.value)
    if expr.op in _WITHIN:
        return _WITHIN[expr.op]
    if expr.op in _NEVER_NEGATIVE:
        return 0.0, math.inf
    if expr.op in ("maximum", "minimum") and depth:
        (a, b), (c, d) = (bounds(arg, depth - 1) for arg in expr.args)
        return (max(a, c), max(b, d)) if expr.op == "maximum" else (min(a, c), min(b, d))
    return _ANY


def idle_extremum(op: str, x: Expr, limit: Expr) -> bool:
    """Whether a maximum or minimum with a constant gives `x` back."""
    if limit.op != "const" or limit.value is None or math.isnan(limit.value):
        return False
    low, high = bounds(x)
    return low >= limit.value if op == "maximum" else high <= limit.value
