"""Fusion: inline what reduces nothing, drop what nobody needs, merge what shares a space.

The order of merging is greedy: along the edges from producers to readers first, then readers
of a common tensor. `keep` names buffers that are stored and read back even where they could be
computed again; `lower` tries which of them pay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

from agents.playbook.lower.absorb import absorbed
from agents.playbook.lower.context import Context, Step
from agents.playbook.lower.cutting import in_regions
from agents.playbook.lower.expr import Address, Expr
from agents.playbook.lower.inline import digits, inlined
from agents.playbook.lower.merge import merged, shares
from agents.playbook.lower.nest import Nest, where_of
from agents.playbook.lower.split import row_axes, split

# Expressions of one nest: beyond that registers spill and compilers slow down.
INLINE_LIMIT, MERGE_LIMIT, ABSORB_LIMIT = 240, 480, 640
# Reductions over rows that one nest makes at once: each is a register a thread, or several.
REDUCTIONS_LIMIT = 32
# What one more launch costs, in bytes of traffic; between a CPU's and a large GPU's figure, and
# the latter alone.
LAUNCH_BYTES, DEAREST_LAUNCH_BYTES = 1 << 18, 1 << 23

_HEAVY_WORDS = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh sigmoid erf erfc lgamma pow atan2 fmod remainder sqrt rsqrt div
"""
_HEAVY = frozenset(_HEAVY_WORDS.split())


Candidates = Callable[[], Iterator[tuple[Step, Step]]]


@dataclass
class Fusion:
    """One attempt at a schedule."""

    context: Context
    needed: frozenset[str]
    keep: frozenset[str] = frozenset()
    split: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()
    absorb: bool = False
    cuttable: list[str] = field(default_factory=list, init=False)
    splittable: list[str] = field(default_factory=list, init=False)
    steps: list[Step] = field(default_factory=list, init=False)
    inlined: dict[str, int] = field(default_factory=dict, init=False)

    def run(self) -> Fusion:
        """Inlines, drops and merges; `steps` are the result in a valid order."""
        self.steps = [Step(s.number, s.nest, s.line) for s in self.context.steps]
        _number_stages(self.steps)
        self._inline()
        self._drop()
        self._cut()
        self._split()
        if self.absorb:
            self._absorb()
        # What lies between the same library calls first: it shares most.
        self._merge(self._edges, near=True)
        self._merge(self._siblings, near=True)
        self._merge(self._edges)
        self._merge(self._siblings)
        self._drop()
        self.steps = ordered(self.steps)
        return self

    # Inlining

    def _inline(self) -> None:
        producers: dict[str, Step] = {}
        for step in self.steps:
            if step.nest is not None:
                step.nest = self._absorbed(step, producers)
            for buffer in step.targets:
                # A tensor written in parts has no one producer.
                parts = buffer in producers
                producers[buffer] = Step(-1) if parts else step

    def _absorbed(self, step: Step, producers: dict[str, Step]) -> Nest:
        nest = step.nest
        if nest is None:
            raise ValueError("a plan line computes nothing")
        refused: set[Address] = set()
        while (load := self._candidate(nest, producers, refused)) is not None:
            where = where_of(load)
            source = producers[where.buffer]
            new = None
            if source.nest is not None and self._worth(source, step, nest, where):
                new = inlined(self.context.ops, nest, load, source.nest)
            if new is None or len(new.exprs) > (ABSORB_LIMIT if self.absorb else INLINE_LIMIT):
                refused.add(where)
                continue
            self.inlined[where.buffer] = self.inlined.get(where.buffer, 0) + 1
            nest = new
        return nest

    def _candidate(
        self, nest: Nest, producers: dict[str, Step], refused: set[Address]
    ) -> Expr | None:
        for load in nest.loads:
            where = where_of(load)
            source = producers.get(where.buffer)
            if where in refused or source is None or source.nest is None or source.nest.inner:
                continue
            if where.buffer in self.keep or where.buffer in self.context.exact:
                continue
            if digits(source.nest.writes[0].address) is not None:
                return load
        return None

    def _worth(self, source: Step, step: Step, nest: Nest, where: Address) -> bool:
        """Whether computing again is no dearer than storing and reading back."""
        made = source.nest
        if made is None:
            return False
        pool = self.context.pool
        heavy = any(expr.op in _HEAVY for expr in made.exprs)
        repeats = nest.numel(pool) // max(1, made.numel(pool))
        if heavy and repeats >= 8 and _along_fastest(nest, where):
            return False
        if step.stage == source.stage:
            return True
        # A library call lies between: the two can never be one nest.
        again = nest_read_bytes(self.context, made)
        stored = made.numel(pool) * where.dtype.itemsize_bytes
        return again <= stored * (1 if where.buffer in self.needed else 2)

    # Cutting

    def _cut(self) -> None:
        """Cuts nests where the regions meet that they read."""
        self.steps, self.cuttable = in_regions(self.context, self.steps, self.cut)
        self._drop()

    # Splitting

    def _split(self) -> None:
        made = (step.nest for step in self.steps if step.nest is not None and step.nest.inner)
        statistics = frozenset[str]().union(*(nest.targets for nest in made))
        result: list[Step] = []
        for step in self.steps:
            rows = row_axes(step.nest, statistics) if step.nest is not None else ()
            if step.nest is None or not rows:
                result.append(step)
                continue
            name = min(step.targets)
            self.splittable.append(name)
            parts = split(self.context, step.nest, rows) if name in self.split else (step.nest,)
            result += [Step(step.number, nest, stage=step.stage) for nest in parts]
        self.steps = result

    # Absorbing

    def _absorb(self) -> None:
        """Lets windows over rows compute what they need of them; see `absorb`."""
        makers = {b: s.nest for s in self.steps if s.nest and s.nest.inner for b in s.targets}
        for step in self.steps:
            if step.nest is not None and not step.nest.inner:
                step.nest = self._with_rows(step.nest, makers)
        self._drop()

    def _with_rows(self, nest: Nest, makers: dict[str, Nest]) -> Nest:
        """The nest after it took the reductions that it cannot be merged with.

        Those are read at several places, or lie along an axis that windows move along. The last
        made come first, as they read the others.
        """
        sizes = self.context.pool.sizes
        for buffer in reversed(makers):
            count = sum(where_of(load).buffer == buffer for load in nest.loads)
            new = absorbed(self.context.ops, nest, makers[buffer]) if count else None
            if new is None or not self._bearable(new) or not self._keeps_levels(new):
                continue
            rows = (prod(sizes[axis] for axis in n.inner) for n in (new, makers[buffer]))
            if count > 1 or len(set(rows)) > 1:
                nest = new
        return nest

    def _bearable(self, nest: Nest) -> bool:
        reductions = sum(expr.op == "reduce" for expr in nest.exprs)
        return len(nest.exprs) <= ABSORB_LIMIT and reductions <= REDUCTIONS_LIMIT

    # Dropping

    def _drop(self) -> None:
        """Removes writes that no step and no output needs, and nests left without any."""
        changed = True
        while changed:
            wanted = self.needed.union(*(step.reads for step in self.steps))
            kept: list[Step] = []
            for step in self.steps:
                useless = step.targets - wanted
                if step.nest is not None and useless:
                    step.nest = step.nest.without(useless)
                if (
                    (step.nest is None and step.targets - useless)
                    or (step.nest and step.nest.writes)
                    or (step.line is not None and not step.line.makes)
                ):
                    kept.append(step)
            changed = len(kept) != len(self.steps)
            self.steps = kept

    # Merging

    def _merge(self, candidates: Candidates, near: bool = False) -> None:
        failed: set[tuple[int, int]] = set()
        alive: list[Nest] = []
        while self._merge_once(candidates, near, failed, alive):
            self._drop()

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
            if new is not None and self._keeps_levels(new) and not self._turns(new):
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

    def _keeps_levels(self, nest: Nest) -> bool:
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

    def _turns(self, nest: Nest) -> bool:
        """Whether rows of a channels-last tensor would be written along another axis than read.

        One of both would move a sector for each element. Two loops read twice and move what
        they need: one reduces as the tensor lies, the other turns tiles of it.
        """
        if not self.context.channels_last:
            return False
        inner = set(nest.inner)
        read = [where for where in map(where_of, nest.loads) if where.axes & inner]
        written = [write.address for write in nest.writes if write.address.axes & inner]
        if not read or not written:
            return False
        first, second = max(read, key=footprint), max(written, key=footprint)
        return 2 * footprint(first) >= footprint(second) and fastest(first) != fastest(second)

    # Cost

    def cost(self, launch_bytes: int = LAUNCH_BYTES) -> int:
        """Bytes moved, launches included, by everything that is not a library call."""
        total = 0
        for step in self.steps:
            if step.nest is not None:
                total += launch_bytes + nest_read_bytes(self.context, step.nest)
                total += sum(footprint(write.address) for write in step.nest.writes)
        return total


def _in_each_others_way(first: Nest, second: Nest) -> bool:
    """Whether one scans what the other reduces: together a device walks rows element by element."""
    return "scan" in first.kinds | second.kinds and "reduce" in first.kinds | second.kinds


def _along_fastest(nest: Nest, where: Address) -> bool:
    """Whether a read varies along the row, or along the axis that the nest's write moves least.

    Such a read is made again for every row; one that does not can be made once a row.
    """
    if nest.inner:
        return any(where.step(axis) for axis in nest.inner)
    axis = fastest(nest.writes[0].address)
    return axis is not None and where.step(axis) != 0


def fastest(where: Address) -> str | None:
    """The axis along which an address moves least; None where it stays."""
    axes = [(abs(term.step), term.by) for term in where.terms if isinstance(term.by, str)]
    return min(axes)[1] if axes else None


def footprint(where: Address) -> int:
    """Bytes at distinct positions of an address."""
    return prod(term.size for term in where.terms) * where.dtype.itemsize_bytes


def nest_read_bytes(context: Context, nest: Nest) -> int:
    """Bytes that a nest must read, each element counted once."""
    read: dict[str, int] = {}
    for load in nest.loads:
        where = where_of(load)
        buffer = context.buffers[where.buffer]
        size = prod(buffer.shape) * buffer.dtype.itemsize_bytes
        read[where.buffer] = min(size, read.get(where.buffer, 0) + footprint(where))
    return sum(read.values())


def _number_stages(steps: list[Step]) -> None:
    """Tells every step how many library calls lie before it on the longest path."""
    made: dict[str, int] = {}
    for step in steps:
        step.stage = max((made.get(buffer, 0) for buffer in step.reads), default=0)
        for buffer in step.targets:
            made[buffer] = max(made.get(buffer, 0), step.stage + (step.nest is None))


def ordered(steps: list[Step]) -> list[Step]:
    """The steps so that everything is made before it is read, else in the graph's order."""
    made = {buffer for step in steps for buffer in step.targets}
    left = sorted(steps, key=lambda step: step.number)
    result: list[Step] = []
    while left:
        blocked = set[str]().union(*(step.targets for step in left))
        ready = next((s for s in left if not (s.reads & made & (blocked - s.targets))), None)
        if ready is None:
            raise ValueError("the steps depend on each other in a circle")
        left.remove(ready)
        result.append(ready)
    return result
