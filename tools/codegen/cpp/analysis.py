"""Facts about a loop on a CPU: the axes that vectorise, what values depend on, what to keep.

A *lane group* is the run of innermost axes that one vector loop covers. Axes join it while every
access moves through them in one constant step; a group that would be too short to fill a vector
takes its neighbour anyway, and accesses then divide the position back into coordinates. CUDA's
`nest` merges the axes of a loop once, for all passes, as there all threads of a row meet in one
order; here each sweep merges what its own accesses allow, as no other has to agree.

`shortened` makes small rewrites that only pay on a CPU, where arithmetic and not memory is often
the limit. Each holds for every input, up to rounding within the prelude's stated errors:
1 + erf(x) and 1 + tanh(x) have cheaper forms than their functions; an exponential under its
maximum cannot overflow; a division by a sum of such, which lies between 1 and the row's length,
is a product.

`Analysis` says what values depend on, when they are known, and which are worth keeping. Its `sweep`
counts walks over a row: a value of sweep k needs the reductions of sweep k - 1. A scan is known in
the sweep that makes it, so it does not add a walk (unlike `Loop.passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import prod

from kernelwright.tools.codegen.cpp.expressions import (
    DIVIDES,
    HEAVY,
    PREDICATES,
    computed_type,
    literal,
)
from kernelwright.tools.codegen.ir import Access, Axis, Loop, ReduceKind, Stmt, Store, results
from kernelwright.tools.codegen.ir.loops import (
    by_falling_stride,
    indices,
    operands,
    statements_behind,
    varies_along,
    walked_as_one,
    walks_before,
    without_unread,
)
from kernelwright.tools.codegen.ir.rewrites import rounded_alone
from kernelwright.tools.types import DType, Value

# Below this many elements a vector loop is mostly its own beginning and end.
SHORT = 16


class LaneGroup(Value):
    """Axes walked together by a vector loop, outermost first; empty for a single element."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of positions."""
        return prod(axis.size for axis in self.axes)

    def names(self) -> frozenset[str]:
        """Names of the axes."""
        return frozenset(axis.name for axis in self.axes)

    def step(self, access: Access) -> int | None:
        """Elements that `access` moves a position; None when that is not constant."""
        return _constant_step(self.axes, access)

    def coordinate(self, axis: str, position: str) -> str:
        """The coordinate along one of the axes at a position of the group."""
        below = 1
        for index in range(len(self.axes) - 1, -1, -1):
            if self.axes[index].name == axis:
                return _decoded(position, below, self.axes[index].size, outermost=index == 0)
            below *= self.axes[index].size
        raise KeyError(axis)


def _decoded(position: str, below: int, size: int, *, outermost: bool) -> str:
    text = position if below == 1 else f"{position} / {below}"
    return text if outermost else f"{text} % {size}"


def decode(axes: Sequence[Axis], position: str) -> list[tuple[str, str]]:
    """(axis name, expression) of each coordinate at a row-major position."""
    group = LaneGroup(axes=tuple(axes))
    return [(axis.name, group.coordinate(axis.name, position)) for axis in axes]


def linear(axes: Sequence[Axis], coordinate: Callable[[str], str]) -> str:
    """The row-major position at given coordinates."""
    text = "0"
    for axis in axes:
        here = coordinate(axis.name)
        text = here if text == "0" else f"({text}) * {axis.size} + {here}" if here != "0" else text
    return text


def lane_group(
    axes: Sequence[Axis], accesses: Iterable[Access], indexed: frozenset[str]
) -> tuple[tuple[Axis, ...], LaneGroup]:
    """Splits axes into leading ones and the lane group.

    Args:
        axes: Outermost first; the last one is where neighbours in memory should be.
        accesses: Everything read or written in the loop.
        indexed: Axes whose coordinate is itself a value.
    """
    accesses = tuple(accesses)
    rest = list(axes)
    group: list[Axis] = []
    while rest:
        longer = [rest[-1], *group]
        names = {axis.name for axis in longer}
        smooth = all(_constant_step(longer, access) is not None for access in accesses)
        smooth = smooth and not (len(longer) > 1 and names & indexed)
        if group and not smooth and prod(axis.size for axis in group) >= SHORT:
            break
        group = longer
        rest.pop()
    return tuple(rest), LaneGroup(axes=tuple(group))


def _constant_step(axes: Sequence[Axis], access: Access) -> int | None:
    for outer, inner in pairwise(axes):
        steps = access.step(outer.name), access.step(inner.name)
        if not walked_as_one(*steps, inner.size):
            return None
    return access.step(axes[-1].name) if axes else 0


def dominant(loop: Loop, accesses: Iterable[Access] | None = None) -> Access | None:
    """The access that touches most elements, the first of them; None for a loop without any."""
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    if accesses is None:
        loads = [stmt.access for stmt in loop.body if stmt.access is not None]
        accesses = [*loads, *(store.access for store in loop.stores)]

    def touched(access: Access) -> int:
        return prod(size for name, size in sizes.items() if access.step(name))

    return max(accesses, key=touched, default=None)


def sorted_axes(axes: Sequence[Axis], access: Access | None) -> tuple[Axis, ...]:
    """Axes by falling stride of an access, so that the last one is contiguous in it."""
    if access is None:
        return tuple(axes)
    return tuple(by_falling_stride(axes, [lambda axis: access.step(axis.name)]))


def address(
    access: Access, coordinates: Mapping[str, str], extra: Sequence[tuple[int, str]] = ()
) -> str:
    """Offset + sum of stride x coordinate, over the given coordinates and `extra` terms."""
    terms = [str(access.offset)] if access.offset else []
    for step, text in [*((access.step(by), text) for by, text in coordinates.items()), *extra]:
        if step and text != "0":
            terms.append(text if step == 1 else f"{step} * {text}")
    return " + ".join(terms) or "0"


def without_single(loop: Loop) -> Loop:
    """The loop without axes of one position; a reduced loop keeps one inner axis at least."""
    inner = tuple(axis for axis in loop.inner if axis.size != 1) or loop.inner[-1:]
    outer = tuple(axis for axis in loop.outer if axis.size != 1)
    names = {axis.name for axis in (*outer, *inner)}
    gone = {axis.name for axis in (*loop.outer, *loop.inner)} - names
    if not gone:
        return loop
    body = tuple(_without(stmt, gone) for stmt in loop.body)
    stores = tuple(
        store.model_copy(update={"access": _narrower(store.access, gone)}) for store in loop.stores
    )
    return loop.model_copy(update={"outer": outer, "inner": inner, "body": body, "stores": stores})


def _without(stmt: Stmt, gone: set[str]) -> Stmt:
    if stmt.op == "index" and stmt.args[0] in gone:
        return stmt.model_copy(update={"op": "const", "args": (), "value": 0})
    if stmt.access is None:
        return stmt
    return stmt.model_copy(update={"access": _narrower(stmt.access, gone)})


def _narrower(access: Access, gone: set[str]) -> Access:
    strides = tuple(stride for stride in access.strides if stride.by not in gone)
    return access.model_copy(update={"strides": strides})


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
