"""Plans one walk over a row: what is computed in which stage, what is kept for later.

A chunk of a row is walked once a *stage*. Stages follow one another where a value needs the whole
chunk first: the distances from a mean, exponentials under a maximum, a scan. A value needed by a
later stage is kept for the chunk, and by a later sweep for the row, when that is cheaper than
computing it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kernelwright.tools.codegen.cpp.analysis import Analysis, LaneGroup, lane_group
from kernelwright.tools.codegen.ir import Access, Axis, ReduceKind, Stmt, Store

Source = Literal["computed", "chunk", "row"]
TWO_STAGES = (ReduceKind.MOMENTS, ReduceKind.SOFTMAX)


class SweepPlan:
    """What one sweep does.

    Attributes:
        stages: For each stage, its element-level values in order and where each comes from.
        unit: Values that vary along leading inner axes only, in order.
        reduces: (statement, stage in which its argument is known).
        scans: (statement, stage in which its argument is known).
        stores: (store, stage); stage -1 for stores that do not move along the lanes.
        chunked: Values kept for the chunk.
        taken: Values taken from buffers that an earlier sweep filled.
        leads: Inner axes outside of the lane group.
        group: The axes of the vector loop.
    """

    def __init__(
        self, facts: Analysis, number: int, prior: frozenset[str], *, keeping: bool
    ) -> None:
        self.facts, self.number, self._prior, self._keeping = facts, number, prior, keeping
        reduces = [stmt for stmt in facts.reductions if facts.sweep[stmt.name] == number]
        scans = [stmt for stmt in facts.scans if facts.sweep[stmt.name] == number - 1]
        stores = [
            store
            for store in facts.loop.stores
            if facts.is_element_store(store) and facts.store_sweep(store) == number - 1
        ]
        self.leads, self.group = self._axes([*(s.name for s in reduces + scans)], stores)
        self._outside = frozenset(axis.name for axis in (*facts.loop.outer, *self.leads))
        self.stages: list[dict[str, Source]] = [{}]
        self.unit: list[str] = []
        self.chunked: set[str] = set()
        self.taken: set[str] = set()
        self.reduces: list[tuple[Stmt, int]] = []
        self.scans: list[tuple[Stmt, int]] = []
        self.stores: list[tuple[Store, int]] = []
        for stmt in scans:
            self._want(stmt.name, self._stage(stmt.name))
        for stmt in reduces:
            self._reduce(stmt)
        for store in stores:
            self._store(store)

    def is_lane(self, name: str) -> bool:
        """Whether a value varies within the vector loop."""
        return bool(self.facts.depends[name] & self.group.names())

    def is_unit(self, name: str) -> bool:
        """Whether a value varies along leading inner axes but not within the vector loop."""
        leads = {axis.name for axis in self.leads}
        return not self.is_lane(name) and bool(self.facts.depends[name] & leads)

    @property
    def computed(self) -> frozenset[str]:
        """Element-level values that this sweep computes."""
        return frozenset(n for stage in self.stages for n, s in stage.items() if s == "computed")

    def _axes(
        self, names: Iterable[str], stores: Iterable[Store]
    ) -> tuple[tuple[Axis, ...], LaneGroup]:
        """Merges axes as far as the accesses of this sweep alone allow."""
        accesses: list[Access] = [store.access for store in stores]
        waiting = [*names, *(store.value for store in stores)]
        waiting += [name for store in stores for name in self.facts.indices(store.access)]
        seen: set[str] = set()
        indexed: set[str] = set()
        while waiting:
            stmt = self.facts.statements[waiting.pop()]
            if stmt.name in seen:
                continue
            seen.add(stmt.name)
            indexed |= set(stmt.args) if stmt.op == "index" else set()
            if stmt.access is not None:
                accesses.append(stmt.access)
            done = stmt.op == "reduce" and self.facts.sweep[stmt.name] < self.number
            waiting += () if done else self.facts.operands(stmt)
        return lane_group(self.facts.loop.inner, accesses, frozenset(indexed))

    def _from_row(self, name: str) -> bool:
        if not (self._keeping and name in self._prior and self.is_lane(name)):
            return False
        return self.facts.is_costly(name, self._outside)

    def _stage(self, name: str) -> int:
        if not self.is_lane(name) or self._from_row(name):
            return 0
        stmt = self.facts.statements[name]
        before = max((self._stage(arg) for arg in self.facts.operands(stmt)), default=0)
        return before + (stmt.op == "scan")

    def _want(self, name: str, stage: int) -> None:
        """Makes a value available in a stage."""
        facts = self.facts
        while len(self.stages) <= stage:
            self.stages.append({})
        here = self.stages[stage]
        if name in here or facts.is_literal(name):
            return
        stmt = facts.statements[name]
        if not self.is_lane(name):
            self._want_unit(name)
        elif self._from_row(name):
            here[name] = "row"
            self.taken.add(name)
        elif stmt.op == "scan":
            self._want_scan(stmt)
            here[name] = "chunk"
        elif self._computed_before(name, stage) and facts.is_costly(name, self._outside):
            self.chunked.add(name)
            here[name] = "chunk"
        else:
            for arg in facts.operands(stmt):
                self._want(arg, stage)
            here[name] = "computed"

    def _want_unit(self, name: str) -> None:
        if not self.is_unit(name) or name in self.unit or self.facts.is_literal(name):
            return
        for arg in self.facts.operands(self.facts.statements[name]):
            self._want_unit(arg)
        self.unit.append(name)

    def _want_scan(self, stmt: Stmt) -> None:
        if any(known.name == stmt.name for known, _ in self.scans):
            return
        stage = self._stage(stmt.args[0])
        self._want(stmt.args[0], stage)
        self.scans.append((stmt, stage))

    def _computed_before(self, name: str, stage: int) -> bool:
        return any(before.get(name) == "computed" for before in self.stages[:stage])

    def _reduce(self, stmt: Stmt) -> None:
        stage = self._stage(stmt.args[0])
        self._want(stmt.args[0], stage)
        if stmt.reduce in TWO_STAGES:
            self._want(stmt.args[0], stage + 1)
        self.reduces.append((stmt, stage))

    def _store(self, store: Store) -> None:
        names = (store.value, *self.facts.indices(store.access))
        moves = self.facts.store_depends(store) & self.group.names()
        stage = max(self._stage(name) for name in names)
        for name in names:
            self._want(name, stage)
        self.stores.append((store, stage if moves else -1))


def plan_sweeps(facts: Analysis, *, keeping: bool) -> tuple[SweepPlan, ...]:
    """Plans every sweep of a loop; `keeping` lets sweeps leave values in row buffers."""
    plans: list[SweepPlan] = []
    prior: frozenset[str] = frozenset()
    for number in range(1, facts.sweeps + 1):
        plan = SweepPlan(facts, number, prior, keeping=keeping)
        plans.append(plan)
        prior |= plan.computed | {stmt.name for stmt, _ in plan.scans}
    return tuple(plans)
