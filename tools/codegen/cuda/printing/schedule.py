"""Which statement runs in which pass over a row, and what may stay on chip between passes.

Pass p evaluates the reductions that need p - 1 complete passes before them, together with the
stores that are ready by then; a last pass without reductions writes what depends on the final
ones. Row-level statements run between passes, once for a row. What each kind of reduction
accumulates is here too: the prelude's type, its size, how results are read.

C++ plans its walks in `cpp.sweep_plan`: one thread there has a chunk of the row in its cache and
walks it again and again, so that a pass has stages, and what is kept is weighed against computing
it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.printing.expressions import c_type, value_type
from kernelwright.tools.codegen.cuda.printing.nest import Nest
from kernelwright.tools.codegen.cuda.printing.vectors import Vectors
from kernelwright.tools.codegen.ir import ReduceKind, Stmt, results
from kernelwright.tools.codegen.ir.loops import (
    axis_names,
    computed,
    operands,
    statements_behind,
    walks_before,
)
from kernelwright.tools.types import DType


@dataclass(frozen=True)
class Pass:
    """One walk over a row.

    `element` are the statements evaluated at every position, `stores` the element-level stores
    among them (by index), `reductions` what is complete afterwards; then `after` runs once for
    the row, and `row_stores` are written.
    """

    number: int
    element: tuple[Stmt, ...]
    reductions: tuple[Stmt, ...]
    stores: tuple[int, ...]
    after: tuple[Stmt, ...]
    row_stores: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """Every pass, and the row-level statements and stores that need none."""

    before: tuple[Stmt, ...]
    before_stores: tuple[int, ...]
    passes: tuple[Pass, ...]

    @property
    def reducing(self) -> tuple[Pass, ...]:
        """The passes that end in a reduction."""
        return tuple(one for one in self.passes if one.reductions)

    @property
    def ends_in_reduction(self) -> bool:
        """Whether nothing is written along the row after the last reduction."""
        return bool(self.passes) and bool(self.passes[-1].reductions)


class Scheduler:
    """Assigns a nest's statements to passes.

    Args:
        nest: The nest.
        in_order: Whether a row is walked in order by one thread, so that a running value is known
            in the very pass that makes it.
    """

    def __init__(self, nest: Nest, *, in_order: bool = False):
        self._nest = nest
        self._by_name = {name: stmt for stmt in nest.loop.body for name in results(stmt)}
        self._depth = walks_before(nest.loop) if in_order else nest.loop.passes()

    def schedule(self) -> Schedule:
        """The passes of the nest."""
        nest = self._nest
        stores = range(len(nest.targets))
        element = {at: self._store_depth(at) for at in stores if nest.is_element_store(at)}
        rows = {at: self._store_depth(at) for at in stores if at not in element}
        needed = self._closure(n for at in stores for n in self._store_names(at))
        reductions = [s for s in nest.loop.body if s.op == "reduce" and s.name in needed]
        count = max([self._depth[s.name] for s in reductions], default=0)
        count = max([count, *(depth + 1 for depth in element.values())])
        between = self._row_statements(needed)
        passes = [
            self._pass(number, reductions, element, rows, between) for number in range(1, count + 1)
        ]
        before_stores = tuple(at for at, depth in rows.items() if depth == 0)
        return Schedule(tuple(between.get(0, ())), before_stores, tuple(passes))

    def _pass(
        self,
        number: int,
        reductions: Sequence[Stmt],
        element: Mapping[int, int],
        rows: Mapping[int, int],
        between: Mapping[int, Sequence[Stmt]],
    ) -> Pass:
        mine = tuple(s for s in reductions if self._depth[s.name] == number)
        stores = tuple(at for at, depth in element.items() if depth == number - 1)
        wanted = [stmt.args[0] for stmt in mine]
        wanted += [name for at in stores for name in self._store_names(at)]
        return Pass(
            number=number,
            element=self.element_closure(wanted),
            reductions=mine,
            stores=stores,
            after=tuple(between.get(number, ())),
            row_stores=tuple(at for at, depth in rows.items() if depth == number),
        )

    def element_closure(self, names: Iterable[str], *, scanned: bool = False) -> tuple[Stmt, ...]:
        """The element-level statements behind some values, in the loop's order.

        Where running values are at hand already (`scanned`) nothing behind them is needed.
        """
        found = self._closure(names, level="element", scanned=scanned)
        return tuple(stmt for stmt in self._nest.loop.body if stmt.name in found)

    def _closure(self, names: Iterable[str], level: str = "", scanned: bool = False) -> set[str]:
        nest = self._nest
        return statements_behind(
            names,
            self._by_name,
            lambda stmt: uses(stmt, nest),
            taken=lambda stmt: not level or nest.levels[stmt.name] == level,
            opened=lambda stmt: not (scanned and stmt.op == "scan"),
        )

    def _store_names(self, at: int) -> list[str]:
        return [self._nest.loop.stores[at].value, *(n for n, _ in self._nest.targets[at].gathers)]

    def _store_depth(self, at: int) -> int:
        return max(self._depth[name] for name in self._store_names(at))

    def row_statements(self) -> tuple[Stmt, ...]:
        """The row-level statements that something stored depends on, in the loop's order."""
        stores = range(len(self._nest.targets))
        needed = self._closure(n for at in stores for n in self._store_names(at))
        return tuple(
            stmt
            for stmt in self._nest.loop.body
            if stmt.name in needed and self._nest.levels[stmt.name] == "row"
        )

    def _row_statements(self, needed: set[str]) -> dict[int, list[Stmt]]:
        between: dict[int, list[Stmt]] = {}
        for stmt in self._nest.loop.body:
            at_row = stmt.op != "reduce" and self._nest.levels[stmt.name] == "row"
            if at_row and stmt.name in needed:
                between.setdefault(self._depth[stmt.name], []).append(stmt)
        return between


def schedule_of(nest: Nest) -> Schedule:
    """The passes of a nest."""
    return Scheduler(nest).schedule()


def uses(stmt: Stmt, nest: Nest) -> tuple[str, ...]:
    """The values that a statement reads."""
    return operands(stmt, axis_names(nest.loop))


@dataclass(frozen=True)
class Kept:
    """A value of the first pass that stays on chip for later ones; `raw` as it lies in memory."""

    stmt: Stmt
    raw: bool
    bytes_each: int
    type: str


def kept_values(
    nest: Nest, schedule: Schedule, vectors: Vectors, *, loads_only: bool = False
) -> tuple[Kept, ...]:
    """What the first pass should keep so that later passes need not read or compute it again.

    Either the loads that several passes share, or the values made from them that later passes
    use directly (`residual + x` is one value where its loads are two): whichever is smaller.

    Args:
        nest: The nest.
        schedule: Its passes.
        vectors: Which loads are made of vectors; those are kept as they lie in memory.
        loads_only: Only vector loads, for strategies that keep a raw copy of memory.
    """
    shared = _shared_statements(schedule)
    loads = tuple(_kept(stmt, nest, vectors) for stmt in shared if stmt.op == "load")
    frontier = tuple(_kept(stmt, nest, vectors) for stmt in _frontier(shared, nest, schedule))
    if loads_only:
        return tuple(kept for kept in loads if kept.raw)
    if not frontier:
        return loads
    size = sum(kept.bytes_each for kept in frontier)
    return frontier if size <= sum(kept.bytes_each for kept in loads) else loads


def _shared_statements(schedule: Schedule) -> tuple[Stmt, ...]:
    if not schedule.passes:
        return ()
    first, *later = schedule.passes
    again = {stmt.name for one in later for stmt in one.element}
    return tuple(stmt for stmt in first.element if stmt.name in again)


def _frontier(shared: Sequence[Stmt], nest: Nest, schedule: Schedule) -> tuple[Stmt, ...]:
    """The shared statements that later passes use from outside the shared ones."""
    inside = {stmt.name for stmt in shared}
    wanted: set[str] = set()
    for one in schedule.passes[1:]:
        for stmt in one.element:
            if stmt.name not in inside:
                wanted.update(uses(stmt, nest))
        wanted.update(stmt.args[0] for stmt in one.reductions)
        for at in one.stores:
            wanted.add(nest.loop.stores[at].value)
            wanted.update(name for name, _ in nest.targets[at].gathers)
    # Positions are cheaper to work out again than to keep.
    return tuple(s for s in shared if s.name in wanted and s.op != "index")


def _kept(stmt: Stmt, nest: Nest, vectors: Vectors) -> Kept:
    if stmt.name in vectors.loads:
        dtype = nest.places[stmt.name].dtype
        return Kept(stmt, True, dtype.itemsize_bytes, c_type(dtype))
    size = 1 if stmt.dtype is DType.BOOL else stmt.dtype.itemsize_bytes
    return Kept(stmt, False, size, value_type(stmt.dtype))


_INT_LIMIT = 1 << 31
_POSITIONAL = {ReduceKind.ARGMAX: "ArgMaximum", ReduceKind.ARGMIN: "ArgMinimum"}
_PLAIN = {
    ReduceKind.SUM: ("Sum", 2),
    ReduceKind.PROD: ("Product", 1),
    ReduceKind.MAX: ("Maximum", 1),
    ReduceKind.MIN: ("Minimum", 1),
    ReduceKind.MOMENTS: ("Moments", 4),
    ReduceKind.SOFTMAX: ("OnlineSoftmax", 2),
}


@dataclass(frozen=True)
class Member:
    """One reduction of a pass: its C++ type and layout, and the type of its argument."""

    stmt: Stmt
    type: str
    size: int
    align: int
    argument: DType
    position_type: str = ""

    @property
    def name(self) -> str:
        """The member's name in the pass's struct, which is also its value's."""
        return f"v_{self.stmt.name}"

    def results(self) -> tuple[tuple[str, str], ...]:
        """(name, C++ expression of a partial's member) of each result, `{}` being the partial."""
        first = (self.name, f"{{}}.{self.name}.value()")
        second = f"{{}}.{self.name}.second()"
        if self.stmt.reduce is ReduceKind.MOMENTS:
            return (first, (f"{self.name}_m2", second))
        if self.stmt.reduce is ReduceKind.SOFTMAX:
            return (first, (f"{self.name}_sum", second))
        return (first,)


def member(stmt: Stmt, argument: DType, nest: Nest) -> Member:
    """What a reduction statement accumulates.

    Args:
        stmt: The reduction.
        argument: The type of the value reduced.
        nest: Its nest; positions are 32 bits wide where that suffices.
    """
    kind = stmt.reduce
    dtype = computed(stmt.dtype)
    if kind in _POSITIONAL:
        return _positional(stmt, computed(argument), nest)
    if kind in (ReduceKind.ANY, ReduceKind.ALL) or dtype is DType.BOOL:
        # Over truth values max is any, min and prod are all, and so is a sum's "more than none".
        every = kind in (ReduceKind.ALL, ReduceKind.MIN, ReduceKind.PROD)
        return Member(stmt, "kw::All" if every else "kw::Any", 4, 4, DType.BOOL)
    if kind is None or kind not in _PLAIN:
        raise ValueError(f"{stmt.name}: no reduction {kind}")
    name, words = _PLAIN[kind]
    if kind is ReduceKind.SUM and dtype is DType.INT64:
        words = 1
    size = dtype.itemsize_bytes
    return Member(stmt, f"kw::{name}<{value_type(dtype)}>", words * size, size, dtype)


def _positional(stmt: Stmt, argument: DType, nest: Nest) -> Member:
    kind = stmt.reduce
    assert kind is not None
    index = "int" if nest.columns < _INT_LIMIT else "long long"
    align = max(argument.itemsize_bytes, 4 if index == "int" else 8)
    name = f"kw::{_POSITIONAL[kind]}<{value_type(argument)}, {index}>"
    return Member(stmt, name, 2 * align, align, argument, index)


def struct_bytes(members: Sequence[Member]) -> int:
    """The size of a struct of these members, in bytes, as C++ lays it out."""
    at = 0
    for one in members:
        at = _aligned(at, one.align) + one.size
    return _aligned(at, max(one.align for one in members))


def _aligned(at: int, to: int) -> int:
    return (at + to - 1) // to * to
