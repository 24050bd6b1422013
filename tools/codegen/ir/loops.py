"""A loop: one fused iteration space of the intermediate form, and what can be read off it.

A Loop's axes are split into `outer` (kept) and `inner` (reduced, or scanned); a Loop that reduces
nothing has no inner axes. Its body is a list of statements in SSA form and in topological order. A
statement is at *row* level when its value is the same for all inner positions (nothing it depends
on varies along an inner axis, or it is a reduction), and at *element* level otherwise;
`Loop.levels` works that out. Sizes and strides are concrete integers, in elements. A buffer is
named by the plan's variable.

Everything memory-bound is written this way: softmax is two reductions and a store, a layer
norm one `moments` and a store, a loss a reduction over every axis, a bias-activation chain a
loop without inner axes. How a loop is spread over threads is not said here: that is a
strategy, and strategies live with the emitters.

Read off a loop: which order of axes is contiguous and which neighbours are walked as one; what its
values depend on (axes, walks over the row, other statements); which types are computed in (what
they are called is a language's business); and a readable label, worked out from its structure
alone, that names ideas and groups the ledger; nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import StrEnum
from math import prod
from typing import Literal, TypeVar

from pydantic import Field

from kernelwright.tools.types import DType, Value

AxisT = TypeVar("AxisT")
Step = Callable[[AxisT], int]

# An axis along which an access stands still is outermost: what it reads there is used again.
_STILL = 1 << 62


def by_falling_stride(axes: Iterable[AxisT], guides: Sequence[Step[AxisT]]) -> list[AxisT]:
    """Axes with the contiguous one last; guides say the step along an axis, the first decides."""
    return sorted(axes, key=lambda axis: tuple(-(abs(step(axis)) or _STILL) for step in guides))


def walked_as_one(outer_step: int, inner_step: int, inner_size: int) -> bool:
    """Whether an access moves through two neighbouring axes in one constant step."""
    return outer_step == inner_step * inner_size


class Axis(Value):
    """One iteration axis."""

    name: str
    size: int


class Stride(Value):
    """How far one step moves in a buffer, in elements.

    `by` is the name of an axis, or of an integer statement for indirect access (a gather).
    """

    by: str
    step: int


class Access(Value):
    """A position in a buffer: offset + sum of step x (axis position or statement value)."""

    buffer: str
    dtype: DType
    offset: int = 0
    strides: tuple[Stride, ...] = ()

    def step(self, by: str) -> int:
        """The stride along an axis; 0 where the access does not vary with it."""
        return sum(stride.step for stride in self.strides if stride.by == by)


class ReduceKind(StrEnum):
    """What a reduction keeps of a row.

    `moments` gives the mean and the sum of squared distances from it (its statement has two
    results, `<name>` and `<name>_m2`). `softmax` gives the maximum of its argument and the sum
    of exp(argument - maximum) (`<name>` and `<name>_sum`); no graph contains it, a rewrite
    makes it from a max and a sum. `argmax` and `argmin` give the first position of the extremum
    in the row-major order of the inner axes, as int64. Comparisons treat NaN as PyTorch does:
    it wins.
    """

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ANY = "any"
    ALL = "all"
    ARGMAX = "argmax"
    ARGMIN = "argmin"
    MOMENTS = "moments"
    SOFTMAX = "softmax"


class Stmt(Value):
    """One SSA statement.

    `op` is one of
      load      `access` read and converted to `dtype` (float16 and bfloat16 become float32);
                with an argument only where that holds: elsewhere nothing is read, and it is 0
      const     `value`
      index     position along the axis named in `args[0]`, as int64
      reduce    `reduce` over all inner axes of the element-level statement `args[0]`
      scan      running `scan` along the inner axes of `args[0]`, in their row-major order,
                inclusive
      fold      `reduce` of `args[0]` over the outer axes `along`, of what a product makes: known
                only where a kernel has all of it at hand
      statistic the same, where `args[1]` (if there is one) holds: known when all tiles are done,
                so that only stores are computed from it
      to_float16, to_bfloat16
                `args[0]` rounded to that type: what whoever reads it from memory has
      cast      `args[0]` converted to `dtype`; a factor of a product to the half type that the
                module multiplies in, by kernels that compute in it (others go on in float32)
      tf32      `args[0]`, a factor of a product that kernels may round to TF32's 11 bits, as the
                module does; others go on in float32
      <name>    a pointwise operator of `OPERATORS`, on `args`

    `dtype` is the type computed in: float32, float64, int64 or bool.

    Statements are equal that compute the same to the last bit: 0.0 is not -0.0, nor 1 True. Loops
    that are equal share a kernel.
    """

    name: str
    op: str
    dtype: DType
    args: tuple[str, ...] = ()
    value: float | int | bool | None = None
    access: Access | None = None
    reduce: ReduceKind | None = None
    scan: Literal["sum", "prod", "max", "min"] | None = None
    along: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Whether it computes the same; repr tells 0.0 from -0.0, and 1 from True."""
        if not isinstance(other, Stmt) or repr(self.value) != repr(other.value):
            return False
        return super().__eq__(other)


# Pointwise operators and their number of arguments. Semantics are those of the ATen operator
# of the same name; `where` is (condition, then, else), `fma` is a * b + c.
OPERATORS: Mapping[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "pow": 2, "atan2": 2, "fmod": 2, "remainder": 2,
    "floordiv": 2, "truncdiv": 2, "maximum": 2, "minimum": 2, "copysign": 2, "hypot": 2,
    "neg": 1, "abs": 1, "sign": 1, "reciprocal": 1, "sqrt": 1, "rsqrt": 1, "square": 1,
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1,
    "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "sigmoid": 1, "erf": 1, "erfc": 1,
    "lgamma": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "relu": 1,
    "isnan": 1, "isinf": 1, "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,
    "logical_and": 2, "logical_or": 2, "logical_xor": 2, "logical_not": 1,
    "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2, "bitwise_not": 1,
    "shift_left": 2, "shift_right": 2, "where": 3, "fma": 3,
}  # fmt: skip


class Store(Value):
    """Writes statement `value`, converted to the access's type, at every position it varies on.

    With `when`, which only loops of products have, only where that statement holds.
    """

    access: Access
    value: str
    when: str = ""


class Loop(Value):
    """One fused loop nest; see the module's description.

    `preparable` names the buffers that hold a weight as the module does: what a kernel makes of one
    of them alone can be made in the plan's `prepare`, once, and again when the weight changes. A
    loop that does nothing else `is_prepared` as a whole. `sums` is what kernels may keep the sum of
    a product in: less than float32 only where somebody asked for it.
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    stores: tuple[Store, ...]
    family: str = "pointwise"
    sums: DType = DType.FLOAT32
    # Who asks for it says it; the loop itself is the same.
    preparable: tuple[str, ...] = Field(default=(), exclude=True)
    is_prepared: bool = Field(default=False, exclude=True)

    @property
    def rows(self) -> int:
        """Number of outer positions."""
        return prod(axis.size for axis in self.outer)

    @property
    def columns(self) -> int:
        """Number of inner positions of one row."""
        return prod(axis.size for axis in self.inner)

    def on_buffers(self, names: Mapping[str, str]) -> Loop:
        """The same loop on buffers of other names, by the names that they have."""

        def moved(access: Access) -> Access:
            return access.model_copy(update={"buffer": names[access.buffer]})

        body = tuple(
            one.model_copy(update={"access": moved(one.access)}) if one.access else one
            for one in self.body
        )
        stores = tuple(one.model_copy(update={"access": moved(one.access)}) for one in self.stores)
        return self.model_copy(update={"body": body, "stores": stores})

    def stmt(self, name: str) -> Stmt:
        """The statement that defines `name` (also for `<x>_m2` and `<x>_sum`)."""
        for stmt in self.body:
            if name in results(stmt):
                return stmt
        raise KeyError(name)

    @property
    def is_for_products(self) -> bool:
        """Whether it says what only kernels for products print: conditional stores, and folds."""
        conditional = any(store.when for store in self.stores)
        return conditional or any(stmt.op in ("fold", "statistic") for stmt in self.body)

    def levels(self) -> dict[str, Literal["row", "element"]]:
        """For every value defined in the body, whether it varies along inner axes."""
        inner = {axis.name for axis in self.inner}
        levels: dict[str, Literal["row", "element"]] = {}
        for stmt in self.body:
            names = set(stmt.args)
            if stmt.access is not None:
                names |= {stride.by for stride in stmt.access.strides if stride.step}
            varies = bool(names & inner) or any(levels.get(name) == "element" for name in names)
            if stmt.op == "scan":
                varies = True
            for result in results(stmt):
                levels[result] = "element" if varies and stmt.op != "reduce" else "row"
        return levels

    def passes(self) -> dict[str, int]:
        """For every value, how many passes over the row must be complete before it is known.

        0 for values that depend on no reduction or scan; a reduction is 1 + its argument's.
        """
        known: dict[str, int] = {}
        for stmt in self.body:
            names = list(stmt.args)
            if stmt.access is not None:
                names += [stride.by for stride in stmt.access.strides]
            depth = max((known.get(name, 0) for name in names), default=0)
            for result in results(stmt):
                known[result] = depth + (stmt.op in ("reduce", "scan"))
        return known


def results(stmt: Stmt) -> tuple[str, ...]:
    """The names that a statement defines."""
    if stmt.reduce is ReduceKind.MOMENTS:
        return (stmt.name, f"{stmt.name}_m2")
    if stmt.reduce is ReduceKind.SOFTMAX:
        return (stmt.name, f"{stmt.name}_sum")
    return (stmt.name,)


_POWERS = ("exp", "exp2")
_POSITIONS = {ReduceKind.ARGMAX, ReduceKind.ARGMIN}


def loop_label(loop: Loop) -> str:
    """What a person would call the loop."""
    reductions = [stmt for stmt in loop.body if stmt.op == "reduce"]
    if any(stmt.op == "scan" for stmt in loop.body):
        return "scan"
    if not reductions:
        return _without_reductions(loop)
    kinds = {stmt.reduce for stmt in reductions}
    if kinds & _POSITIONS:
        return "argmax"
    if _exponential_sum(loop, reductions):
        return _softmax_relative(loop)
    if not _writes_elements(loop):
        return "loss" if loop.rows == 1 and len(loop.body) > 3 else "reduction"
    return "normalisation"


def _without_reductions(loop: Loop) -> str:
    computes = any(stmt.op not in ("load", "const", "index", "cast", "tf32") for stmt in loop.body)
    if not computes:
        return "copy"
    return "pointwise"


def _exponential_sum(loop: Loop, reductions: list[Stmt]) -> bool:
    if any(stmt.reduce is ReduceKind.SOFTMAX for stmt in reductions):
        return True
    sums = [stmt for stmt in reductions if stmt.reduce is ReduceKind.SUM]
    maxima = {stmt.name for stmt in reductions if stmt.reduce is ReduceKind.MAX}
    return bool(maxima) and any(loop.stmt(stmt.args[0]).op in _POWERS for stmt in sums)


def _softmax_relative(loop: Loop) -> str:
    logarithm = any(stmt.op == "log" and loop.levels()[stmt.name] == "row" for stmt in loop.body)
    if not _writes_elements(loop):
        return "log-sum-exp" if logarithm else "softmax statistics"
    return "log-softmax" if logarithm else "softmax"


def _writes_elements(loop: Loop) -> bool:
    levels = loop.levels()
    return any(levels[store.value] == "element" for store in loop.stores)


def computed(dtype: DType) -> DType:
    """The type that values of `dtype` are computed in."""
    if dtype in (DType.FLOAT64, DType.BOOL):
        return dtype
    return DType.FLOAT32 if dtype.is_floating else DType.INT64


def indices(access: Access, axes: Container[str]) -> tuple[str, ...]:
    """The statements that an indirect access is addressed by."""
    return tuple(one.by for one in access.strides if one.by not in axes and one.step)


def operands(stmt: Stmt, axes: Container[str]) -> tuple[str, ...]:
    """The values that a statement reads; `axes` names those of its loop."""
    names = [] if stmt.op == "index" else list(stmt.args)
    if stmt.access is not None:
        names += indices(stmt.access, axes)
    return tuple(dict.fromkeys(names))


def axis_names(loop: Loop) -> frozenset[str]:
    """The names of a loop's axes."""
    return frozenset(axis.name for axis in (*loop.outer, *loop.inner))


def varies_along(loop: Loop) -> dict[str, frozenset[str]]:
    """For every value, the axes along which it varies."""
    axes, inner = axis_names(loop), {axis.name for axis in loop.inner}
    known: dict[str, frozenset[str]] = {}
    for stmt in loop.body:
        varies = set(stmt.args) if stmt.op == "index" else set()
        if stmt.access is not None:
            varies |= {one.by for one in stmt.access.strides if one.by in axes and one.step}
        for name in operands(stmt, axes):
            varies |= known[name]
        if stmt.op == "reduce":
            varies -= inner
        if stmt.op == "scan":
            varies |= inner
        varies -= set(stmt.along)
        known |= dict.fromkeys(results(stmt), frozenset(varies))
    return known


def walks_before(loop: Loop) -> dict[str, int]:
    """For every value, how many walks over the row must be complete before it can be computed.

    A row is walked in order: a running value is known in the very walk that makes it, so it adds
    none (unlike `Loop.passes`, which is for rows that many threads share).
    """
    axes = axis_names(loop)
    known: dict[str, int] = {}
    for stmt in loop.body:
        before = max((known[name] for name in operands(stmt, axes)), default=0)
        known |= dict.fromkeys(results(stmt), before + (stmt.op == "reduce"))
    return known


def statements_behind(
    names: Iterable[str],
    statements: Mapping[str, Stmt],
    reads: Callable[[Stmt], Sequence[str]],
    *,
    taken: Callable[[Stmt], bool] = lambda stmt: True,
    opened: Callable[[Stmt], bool] = lambda stmt: True,
) -> set[str]:
    """The names of the statements that some values are computed from, their own among them.

    Args:
        names: The values.
        statements: The statement behind every value.
        reads: What a statement reads.
        taken: Which statements count at all.
        opened: Which are looked behind.
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        stmt = statements[waiting.pop()]
        if stmt.name not in found and taken(stmt):
            found.add(stmt.name)
            waiting += reads(stmt) if opened(stmt) else ()
    return found


def without_unread(loop: Loop) -> Loop:
    """The loop without statements that nothing uses any more."""
    wanted = {name for store in loop.stores for name in (store.value, store.when)}
    wanted |= {stride.by for store in loop.stores for stride in store.access.strides}
    kept: list[Stmt] = []
    for stmt in reversed(loop.body):
        if wanted & set(results(stmt)):
            kept.append(stmt)
            wanted |= set(stmt.args)
            wanted |= {s.by for s in stmt.access.strides} if stmt.access is not None else set()
    return loop.model_copy(update={"body": tuple(reversed(kept))})
