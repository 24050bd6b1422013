"""Small rewrites that only pay on a CPU, where arithmetic and not memory is often the limit.

Each holds for every input, up to rounding within the prelude's stated errors:
1 + erf(x) and 1 + tanh(x) have cheaper forms than their functions; an exponential under its
maximum cannot overflow; a division by a sum of such, which lies between 1 and the row's length,
is a product.

What a loop's values depend on, when they are known, and which are worth keeping.

`sweep` counts walks over a row: a value of sweep k needs the reductions of sweep k - 1. A scan is
known in the sweep that makes it, so it does not add a walk (unlike `Loop.passes`).
"""

from __future__ import annotations

from functools import cached_property

from kernelwright.tools.codegen.cpp.expressions import (
    DIVIDES,
    HEAVY,
    PREDICATES,
    computed_type,
    literal,
)
from kernelwright.tools.codegen.ir import Access, Loop, ReduceKind, Stmt, Store, results
from kernelwright.tools.codegen.ir.dependence import (
    indices,
    operands,
    statements_behind,
    varies_along,
    walks_before,
    without_unread,
)
from kernelwright.tools.codegen.ir.rewrites import rounded_alone
from kernelwright.tools.types import DType

ONE_PLUS = {"erf": "one_plus_erf", "tanh": "one_plus_tanh"}


def shortened(loop: Loop) -> Loop:
    """The loop with these rewrites applied; statements nobody reads any more are dropped."""
    known = {stmt.name: stmt for stmt in loop.body}
    body: list[Stmt] = []
    inverses: dict[str, str] = {}
    for stmt in loop.body:
        divisor = _softmax_divisor(stmt, loop, known)
        if divisor is None:
            body.append(_below_maximum(_one_plus(stmt, known), known))
            continue
        if divisor not in inverses:
            inverses[divisor] = f"{divisor}_inverse"
            inverse = Stmt(
                name=inverses[divisor], op="reciprocal", dtype=stmt.dtype, args=(divisor,)
            )
            body.append(inverse)
        body.append(
            stmt.model_copy(update={"op": "mul", "args": (stmt.args[0], inverses[divisor])})
        )
    return without_unread(loop.model_copy(update={"body": tuple(body)}))


def _one_plus(stmt: Stmt, known: dict[str, Stmt]) -> Stmt:
    if stmt.op != "add" or stmt.dtype is not DType.FLOAT32:
        return stmt
    for one, other in (stmt.args, stmt.args[::-1]):
        constant, function = known.get(one), known.get(other)
        if constant is None or function is None or constant.op != "const":
            continue
        if constant.value == 1 and function.op in ONE_PLUS and function.dtype is stmt.dtype:
            return stmt.model_copy(update={"op": ONE_PLUS[function.op], "args": function.args})
    return stmt


def _below_maximum(stmt: Stmt, known: dict[str, Stmt]) -> Stmt:
    if stmt.op == "exp" and _is_below_maximum(stmt, known):
        return stmt.model_copy(update={"op": "exp_below"})
    return stmt


def _is_below_maximum(power: Stmt | None, known: dict[str, Stmt]) -> bool:
    """Whether a statement is an exponential of a value minus the maximum of that value."""
    if power is None or power.op != "exp" or power.dtype is not DType.FLOAT32:
        return False
    shifted = known.get(power.args[0])
    most = known.get(shifted.args[1]) if shifted is not None and shifted.op == "sub" else None
    if shifted is None or most is None or most.args[:1] != shifted.args[:1]:
        return False
    return most.reduce in (ReduceKind.MAX, ReduceKind.SOFTMAX)


def _softmax_divisor(stmt: Stmt, loop: Loop, known: dict[str, Stmt]) -> str | None:
    """The second argument of a division when it is a sum of exponentials under their maximum."""
    if stmt.op != "div" or stmt.dtype is not DType.FLOAT32 or f"{stmt.args[1]}_inverse" in known:
        return None
    name = stmt.args[1]
    if any(s.reduce is ReduceKind.SOFTMAX and name == f"{s.name}_sum" for s in loop.body):
        return name
    total = known.get(name)
    if total is None or total.reduce is not ReduceKind.SUM:
        return None
    return name if _is_below_maximum(known.get(total.args[0]), known) else None


class Analysis:
    """Facts about one loop; nothing here depends on a strategy."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.statements: dict[str, Stmt] = {
            name: stmt for stmt in loop.body for name in results(stmt)
        }
        self.axes = {axis.name: axis for axis in (*loop.outer, *loop.inner)}
        self.inner = frozenset(axis.name for axis in loop.inner)

    def operands(self, stmt: Stmt) -> tuple[str, ...]:
        """Statements whose values `stmt` reads."""
        return operands(stmt, self.axes)

    def indices(self, access: Access) -> tuple[str, ...]:
        """Statements that an indirect access is addressed by."""
        return indices(access, self.axes)

    def is_literal(self, name: str) -> bool:
        """Whether a value is a constant, printed where it is used."""
        return self.statements[name].op == "const"

    def constant(self, name: str) -> float | int | bool | None:
        """The value of a constant, None for anything else."""
        stmt = self.statements[name]
        return stmt.value if stmt.op == "const" else None

    def type_of(self, name: str) -> str:
        """The C++ type of a value."""
        return computed_type(self.statements[name])

    def spelled(self, name: str) -> str:
        """A constant as a literal of its type."""
        stmt = self.statements[name]
        return literal(stmt.value if stmt.value is not None else 0, computed_type(stmt))

    @cached_property
    def alone(self) -> frozenset[str]:
        """The products that nothing may be fused with."""
        return rounded_alone(self.loop)

    @cached_property
    def depends(self) -> dict[str, frozenset[str]]:
        """For every value, the axes along which it varies."""
        return varies_along(self.loop)

    @cached_property
    def sweep(self) -> dict[str, int]:
        """For every value, how many walks must be complete before it can be computed."""
        return walks_before(self.loop)

    def store_depends(self, store: Store) -> frozenset[str]:
        """Axes along which a store moves."""
        axes = {s.by for s in store.access.strides if s.by in self.axes and s.step}
        for name in self.indices(store.access):
            axes |= self.depends[name]
        return frozenset(axes) | self.depends[store.value]

    def store_sweep(self, store: Store) -> int:
        """Walks that must be complete before a store can be made."""
        names = (store.value, *self.indices(store.access))
        return max(self.sweep[name] for name in names)

    def is_element_store(self, store: Store) -> bool:
        """Whether a store moves along inner axes."""
        return bool(self.store_depends(store) & self.inner)

    @property
    def reductions(self) -> tuple[Stmt, ...]:
        """Statements that reduce."""
        return tuple(stmt for stmt in self.loop.body if stmt.op == "reduce")

    @property
    def scans(self) -> tuple[Stmt, ...]:
        """Statements that scan."""
        return tuple(stmt for stmt in self.loop.body if stmt.op == "scan")

    @property
    def sweeps(self) -> int:
        """How many walks over a row the loop needs."""
        reduced = [self.sweep[stmt.name] for stmt in self.reductions]
        scanned = [self.sweep[stmt.name] + 1 for stmt in self.scans]
        written = [
            self.store_sweep(store) + 1
            for store in self.loop.stores
            if self.is_element_store(store)
        ]
        return max((*reduced, *scanned, *written), default=0)

    @property
    def indexed(self) -> frozenset[str]:
        """Axes whose coordinate is a value."""
        return frozenset(stmt.args[0] for stmt in self.loop.body if stmt.op == "index")

    def accesses(self) -> tuple[Access, ...]:
        """Everything that the loop reads or writes."""
        loads = [stmt.access for stmt in self.loop.body if stmt.access is not None]
        return (*loads, *(store.access for store in self.loop.stores))

    def is_costly(self, name: str, outside: frozenset[str]) -> bool:
        """Whether keeping a value beats computing it again.

        Args:
            name: The value.
            outside: Axes of the surrounding loops; what varies along these alone is free.
        """
        stmt = self.statements[name]
        if stmt.op == "scan":
            return True
        return sum(self._cost(part) for part in self._closure(name, outside)) > 2

    def _closure(self, name: str, outside: frozenset[str]) -> tuple[Stmt, ...]:
        def costs(stmt: Stmt) -> bool:
            free = stmt.op in ("const", "reduce") or self.depends[stmt.name] <= outside
            return not free

        found = statements_behind([name], self.statements, self.operands, taken=costs)
        return tuple(self.statements[one] for one in found)

    def _cost(self, stmt: Stmt) -> float:
        if stmt.op == "load" and stmt.access is not None:
            halves = stmt.access.dtype in (DType.FLOAT16, DType.BFLOAT16)
            return 1 + halves + 2 * bool(self.indices(stmt.access))
        if stmt.op in HEAVY or stmt.op == "scan":
            return 4
        if stmt.op in DIVIDES:
            return 2
        return 0.25 if stmt.op in PREDICATES else 0.5
