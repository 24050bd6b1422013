"""Merges nests that share a space, greedily.

Producers with their readers come first, then readers of a common tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.lower.fusion.merge import merged, shares
from kernelwright.tools.codegen.lower.fusion.steps import still_needed
from kernelwright.tools.codegen.lower.nests.context import Context, Step
from kernelwright.tools.codegen.lower.nests.nest import Nest, where_of
from kernelwright.tools.codegen.lower.nests.traffic import fastest, footprint

# Expressions of one nest: beyond that registers spill and compilers slow down.
MERGE_LIMIT = 480
# Elements of a row of which a tile is turned on chip: with 8 rows of single precision, 32 KiB.
MOST_TURNED = 1024

Candidates = Callable[[], Iterator[tuple[Step, Step]]]


@dataclass
class Merging:
    """The steps of a schedule on their way to fewer ones."""

    context: Context
    steps: list[Step]
    needed: frozenset[str]

    def run(self) -> list[Step]:
        """What is left when nothing can be merged any more."""
        # What lies between the same library calls first: it shares most.
        self._merge(self._edges, near=True)
        self._merge(self._siblings, near=True)
        self._merge(self._edges)
        self._merge(self._siblings)
        return self.steps

    def _merge(self, candidates: Candidates, near: bool = False) -> None:
        failed: set[tuple[int, int]] = set()
        alive: list[Nest] = []
        while self._merge_once(candidates, near, failed, alive):
            self.steps = still_needed(self.steps, self.needed)

    def _merge_once(
        self,
        candidates: Candidates,
        near: bool,
        failed: set[tuple[int, int]],
        alive: list[Nest],
    ) -> bool:
        for first, second in candidates():
            if first.nest is None or second.nest is None or (near and first.stage != second.stage):
                continue
            key = (id(first.nest), id(second.nest))
            if key in failed:
                continue
            new = None
            if not self._between(first, second):
                new = merged(self.context.ops, first.nest, second.nest, MERGE_LIMIT)
            if new is not None and keeps_levels(new) and not self._turns(new):
                first.nest, first.stage = new, max(first.stage, second.stage)
                self.steps.remove(second)
                return True
            failed.add(key)
            alive += [first.nest, second.nest]  # so that an id is never another nest's
        return False

    def _edges(self) -> Iterator[tuple[Step, Step]]:
        """Nests that read what another nest makes."""
        makers = {buffer: step for step in self.steps if step.nest for buffer in step.targets}
        for second in self.steps:
            for buffer in sorted(second.reads) if second.nest else ():
                first = makers.get(buffer)
                if first is not None and first is not second:
                    yield first, second

    def _siblings(self) -> Iterator[tuple[Step, Step]]:
        """Nests that read the same tensor."""
        nests = [step for step in self.steps if step.nest is not None]
        for at, first in enumerate(nests):
            for second in nests[at + 1 : at + 33]:
                if (
                    not first.nest
                    or not second.nest
                    or _in_each_others_way(first.nest, second.nest)
                ):
                    continue
                if shares(first.nest, second.nest):
                    turned = first.reads & second.targets
                    yield (second, first) if turned else (first, second)

    def _between(self, first: Step, second: Step) -> bool:
        """Whether a path leads from one to the other through a third step."""
        return self._reaches(first, second) or self._reaches(second, first)

    def _reaches(self, start: Step, end: Step) -> bool:
        readers: dict[str, list[Step]] = {}
        for step in self.steps:
            for buffer in step.reads:
                readers.setdefault(buffer, []).append(step)
        todo = [s for buffer in start.targets for s in readers.get(buffer, ()) if s is not end]
        seen: set[int] = set()
        while todo:
            step = todo.pop()
            if step is end:
                return True
            if id(step) not in seen:
                seen.add(id(step))
                todo += [s for buffer in step.targets for s in readers.get(buffer, ())]
        return False

    def _turns(self, nest: Nest) -> bool:
        """Whether rows of a channels-last tensor would be written along another axis than read.

        One of both would move a sector for each element, unless a tile of whole rows fits on chip
        and is turned there. Two loops read longer rows twice and move what they need: one reduces
        as the tensor lies, the other turns tiles of it.
        """
        if not self.context.channels_last:
            return False
        inner = set(nest.inner)
        read = [where for where in map(where_of, nest.loads) if where.axes & inner]
        written = [write.address for write in nest.writes if write.address.axes & inner]
        if not read or not written:
            return False
        first, second = max(read, key=footprint), max(written, key=footprint)
        if fastest(first) in inner and fastest(second) not in inner:
            sizes = self.context.pool.sizes
            return prod(sizes[axis] for axis in inner) > MOST_TURNED
        return 2 * footprint(first) >= footprint(second) and fastest(first) != fastest(second)


def _in_each_others_way(first: Nest, second: Nest) -> bool:
    """Whether one scans what the other reduces: together a device walks rows element by element."""
    return "scan" in first.kinds | second.kinds and "reduce" in first.kinds | second.kinds


def keeps_levels(nest: Nest) -> bool:
    """Every write is at row level in address and value, or at element level in both.

    A row's value written all along the row stays a nest of its own: a Loop cannot say it.
    """
    outer, inner = set(nest.outer), set(nest.inner)
    varies = nest.dependences()
    for write in nest.writes:
        axes = write.address.axes
        if not outer <= axes or (axes & inner and not inner <= axes):
            return False
        if bool(axes & inner) != bool(varies[write.value] & inner):
            return False
    return True
