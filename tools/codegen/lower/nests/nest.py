"""A nest: one iteration space and what is written in it. The lowering's form of a Loop.

Nests are values. Axes are names in the pool, sizes stand there; size-1 axes do not exist. In the
end a nest becomes an `ir.Loop`: its expressions become statements with short names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, Stride
from kernelwright.tools.codegen.ir.loops import loop_label
from kernelwright.tools.codegen.lower.nests.expressions import (
    Address,
    Affine,
    Expr,
    Pool,
    Term,
    place,
    reachable,
)
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.types import DType

HALVES = (DType.FLOAT16, DType.BFLOAT16)
ORDERED_REDUCTIONS = frozenset({"argmax", "argmin"})


@dataclass(frozen=True)
class Write:
    """`value` goes to `address`, at every position of the nest that the address varies with."""

    address: Address
    value: Expr


@dataclass(frozen=True)
class Nest:
    """Outer axes are kept, inner axes are reduced or scanned; see `ir.Loop`."""

    outer: tuple[str, ...]
    inner: tuple[str, ...]
    writes: tuple[Write, ...]

    @cached_property
    def exprs(self) -> tuple[Expr, ...]:
        """Everything computed, in topological order."""
        return tuple(reachable(write.value for write in self.writes))

    @cached_property
    def loads(self) -> tuple[Expr, ...]:
        """Every distinct read."""
        return tuple(expr for expr in self.exprs if expr.op == "load")

    @property
    def axes(self) -> tuple[str, ...]:
        """Outer axes, then inner ones."""
        return self.outer + self.inner

    @cached_property
    def reads(self) -> frozenset[str]:
        """Buffers read."""
        return frozenset(where_of(load).buffer for load in self.loads)

    @cached_property
    def targets(self) -> frozenset[str]:
        """Buffers written."""
        return frozenset(write.address.buffer for write in self.writes)

    @cached_property
    def ordered(self) -> bool:
        """Whether the order of inner positions matters to a result."""
        return any(
            expr.op == "scan" or (expr.op == "reduce" and expr.word in ORDERED_REDUCTIONS)
            for expr in self.exprs
        )

    @cached_property
    def kinds(self) -> frozenset[str]:
        """What it does along inner axes: `reduce`, `scan`."""
        return frozenset(expr.op for expr in self.exprs if expr.op in ("reduce", "scan"))

    @cached_property
    def is_product(self) -> bool:
        """Whether it sums products of two factors, each with outer axes of its own."""
        inner, varies = frozenset(self.inner), self.dependences()
        for expr in self.exprs:
            if expr.op == "reduce" and expr.word == "sum" and expr.args[0].op == "mul":
                left, right = (varies[factor] - inner for factor in expr.args[0].args)
                if left - right and right - left:
                    return True
        return False

    def half_uses(self, pool: Pool) -> int:
        """How often a product of half types uses each element of either factor; 0 for others."""
        inner, varies = frozenset(self.inner), self.dependences()
        for expr in self.exprs:
            if expr.op == "reduce" and expr.word == "sum" and expr.args[0].op == "mul":
                factors = expr.args[0].args
                if all(factor.op == "cast" and factor.dtype in HALVES for factor in factors):
                    left, right = (varies[factor] - inner for factor in factors)
                    sides = (left - right, right - left)
                    return min(prod(pool.sizes[axis] for axis in side) for side in sides)
        return 0

    def numel(self, pool: Pool) -> int:
        """Positions of the whole space."""
        return prod(pool.sizes[axis] for axis in self.axes)

    def dependences(self) -> dict[Expr, frozenset[str]]:
        """For every expression, the axes that its value varies with."""
        inner = frozenset(self.inner)
        known: dict[Expr, frozenset[str]] = {}
        for expr in self.exprs:
            axes = frozenset[str]().union(*[known[parent] for parent in expr.parents])
            if expr.address is not None:
                axes |= expr.address.axes
            if expr.op == "index":
                axes |= {expr.word}
            if expr.op == "reduce":
                axes -= inner
            if expr.op == "scan":
                axes |= inner
            known[expr] = axes
        return known

    def without(self, buffers: frozenset[str]) -> Nest:
        """The nest without its writes to `buffers`."""
        kept = tuple(write for write in self.writes if write.address.buffer not in buffers)
        return self if len(kept) == len(self.writes) else Nest(self.outer, self.inner, kept)

    def placed(self, ops: Ops, at: Mapping[str, Affine], outer: tuple[str, ...],
               inner: tuple[str, ...]) -> Nest:  # fmt: skip
        """The same computation over other axes: `at` says where the old ones are."""
        values = substitute(ops, [write.value for write in self.writes], at, self.exprs)
        writes = (
            Write(place(write.address, dict(at)), value)
            for write, value in zip(self.writes, values, strict=True)
        )
        return Nest(outer, inner, tuple(writes))

    def split(self, ops: Ops, axis: str, low: int) -> Nest:
        """The nest with an axis replaced by two, the second of size `low`."""
        pool = ops.pool
        size = pool.sizes[axis]
        names = (pool.axis(size // low), pool.axis(low))
        at = {axis: Affine(0, (Term(names[0], low, size // low), Term(names[1], 1, low)))}
        return self.placed(ops, at, _put(self.outer, axis, names), _put(self.inner, axis, names))


def _put(axes: tuple[str, ...], axis: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if axis not in axes:
        return axes
    at = axes.index(axis)
    return axes[:at] + names + axes[at + 1 :]


def where_of(load: Expr) -> Address:
    """The address of a load."""
    if load.address is None:
        raise ValueError(f"{load.op} has no address")
    return load.address


def substitute(
    ops: Ops, roots: list[Expr], at: Mapping[str, Affine], exprs: Iterable[Expr] | None = None
) -> list[Expr]:
    """The expressions with axes replaced by positions along other axes.

    `exprs` are what is reachable from the roots, where somebody knows that already.
    """
    if not at:
        return roots
    positions = dict(at)
    new: dict[Expr, Expr] = {}
    for expr in reachable(roots) if exprs is None else exprs:
        new[expr] = _substituted(ops, expr, positions, new)
    return [new[root] for root in roots]


def _substituted(ops: Ops, expr: Expr, at: dict[str, Affine], new: dict[Expr, Expr]) -> Expr:
    if expr.op == "load":
        return _moved(ops, expr, at, new)
    if expr.op == "index":
        return affine(ops, at[expr.word]) if expr.word in at else expr
    args = tuple([new[arg] for arg in expr.args])
    if args == expr.args:
        return expr
    return ops.remake(ops.pool.make(expr.op, expr.dtype, args, value=expr.value, word=expr.word))


def _moved(ops: Ops, load: Expr, at: dict[str, Affine], new: dict[Expr, Expr]) -> Expr:
    where = where_of(load)
    if load.parents:
        # Indices of an indirect load are expressions themselves, already substituted.
        terms = tuple(
            Term(new[t.by], t.step, t.size) if isinstance(t.by, Expr) else t for t in where.terms
        )
        where = where._replace(terms=terms)
    condition = tuple([new[arg] for arg in load.args])
    return ops.pool.make("load", load.dtype, condition, address=place(where, at))


def affine(ops: Ops, at: Affine) -> Expr:
    """A position as an integer expression."""
    total = ops.pool.const(at.offset, DType.INT64)
    for term in at.terms:
        by = ops.pool.index(term.by) if isinstance(term.by, str) else term.by
        total = ops("add", total, ops("mul", by, term.step))
    return total


_SCANS = ("sum", "prod", "max", "min")


def loop_of(pool: Pool, nest: Nest, name: str) -> Loop:
    """The Loop of a nest."""
    return _Writer(pool, nest).loop(name)


class _Writer:
    def __init__(self, pool: Pool, nest: Nest) -> None:
        self.nest, self.sizes = nest, pool.sizes
        self.axes = {axis: f"o{at}" for at, axis in enumerate(nest.outer)}
        self.axes |= {axis: f"i{at}" for at, axis in enumerate(nest.inner)}
        self.names: dict[Expr, str] = {}
        self.fused = _fusible(nest)

    def loop(self, name: str) -> Loop:
        body = [stmt for expr in self.nest.exprs if (stmt := self._stmt(expr)) is not None]
        stores = tuple(
            Store(access=self._access(write.address), value=self.names[write.value])
            for write in self.nest.writes
        )
        loop = Loop(
            name=name,
            outer=tuple(Axis(name=self.axes[a], size=self.sizes[a]) for a in self.nest.outer),
            inner=tuple(Axis(name=self.axes[a], size=self.sizes[a]) for a in self.nest.inner),
            body=tuple(body),
            stores=stores,
        )
        return loop.model_copy(update={"family": loop_label(loop)})

    def _stmt(self, expr: Expr) -> Stmt | None:
        if expr.op == "second":
            self.names[expr] = f"{self.names[expr.args[0]]}_m2"
            return None
        if expr in self.fused.values():
            return None  # a product that only its fma needs
        name = self.names[expr] = f"v{len(self.names)}"
        if expr.op == "load" and expr.address is not None:
            access, condition = self._access(expr.address), tuple(self.names[a] for a in expr.args)
            return Stmt(name=name, op="load", dtype=expr.dtype, access=access, args=condition)
        if expr.op == "const":
            return Stmt(name=name, op="const", dtype=expr.dtype, value=expr.value)
        if expr.op == "index":
            return Stmt(name=name, op="index", dtype=expr.dtype, args=(self.axes[expr.word],))
        return self._computed(name, expr)

    def _computed(self, name: str, expr: Expr) -> Stmt:
        product = self.fused.get(expr)
        if product is not None:
            (other,) = [arg for arg in expr.args if arg is not product]
            args = tuple(self.names[arg] for arg in (*product.args, other))
            return Stmt(name=name, op="fma", dtype=expr.dtype, args=args)
        args = tuple(self.names[arg] for arg in expr.args)
        if expr.op == "reduce":
            kind = ReduceKind(expr.word)
            return Stmt(name=name, op="reduce", dtype=expr.dtype, args=args, reduce=kind)
        if expr.op == "scan":
            return Stmt.model_validate(
                {"name": name, "op": "scan", "dtype": expr.dtype, "args": args, "scan": expr.word}
            )
        return Stmt(name=name, op=expr.op, dtype=expr.dtype, args=args)

    def _access(self, where: Address) -> Access:
        strides = tuple(
            Stride(by=self.names[t.by] if isinstance(t.by, Expr) else self.axes[t.by], step=t.step)
            for t in where.terms
        )
        return Access(buffer=where.buffer, dtype=where.dtype, offset=where.offset, strides=strides)


def _fusible(nest: Nest) -> dict[Expr, Expr]:
    """Every sum one of whose terms is a product that nothing else uses, with that product."""
    uses = Counter(parent for expr in nest.exprs for parent in expr.parents)
    uses.update(write.value for write in nest.writes)
    fused: dict[Expr, Expr] = {}
    for expr in nest.exprs:
        if expr.op == "add" and expr.dtype.is_floating and expr.args[0] is not expr.args[1]:
            product = next((a for a in expr.args if a.op == "mul" and uses[a] == 1), None)
            if product is not None:
                fused[expr] = product
    return fused
