"""From a nest to an `ir.Loop`: expressions become statements with short names."""

from __future__ import annotations

from collections import Counter

from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, Stride
from kernelwright.tools.codegen.ir.loop_label import loop_label
from kernelwright.tools.codegen.lower.nests.expr import Address, Expr, Pool
from kernelwright.tools.codegen.lower.nests.nest import Nest

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
    uses = Counter(parent for expr in nest.exprs for parent in expr.parents())
    uses.update(write.value for write in nest.writes)
    fused: dict[Expr, Expr] = {}
    for expr in nest.exprs:
        if expr.op == "add" and expr.dtype.is_floating and expr.args[0] is not expr.args[1]:
            product = next((a for a in expr.args if a.op == "mul" and uses[a] == 1), None)
            if product is not None:
                fused[expr] = product
    return fused
