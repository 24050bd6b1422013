"""Merges nests that share a space, greedily: a reduction with what follows, readers of one tensor.

Producers with their readers come first, then readers of a common tensor. Of two nests merged, the
host is the one whose axes stay: the one with inner axes, or of two such the one whose order
matters. Every axis of the guest must find its partner. A guest that reduces nothing may be at row
level (all outer axes, no inner one) or at element level (all of both).

Also the steps of a schedule: which are needed, how they follow each other, what lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

from kernelwright.tools.codegen.lower.fusion.inline import Matching, digits, replaced
from kernelwright.tools.codegen.lower.nests.context import Context, Step
from kernelwright.tools.codegen.lower.nests.expressions import (
    NARROW,
    Address,
    Affine,
    Expr,
    Term,
    address,
)
from kernelwright.tools.codegen.lower.nests.layout import fastest, footprint, lies_mixed
from kernelwright.tools.codegen.lower.nests.nest import Nest, where_of
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.types.graph import draws


def still_needed(steps: list[Step], needed: frozenset[str]) -> list[Step]:
    """The steps without writes that no step and no output needs, and without nests of none."""
    while True:
        wanted = needed.union(*(step.reads for step in steps))
        kept: list[Step] = []
        for step in steps:
            useless = step.targets - wanted
            if step.nest is not None and useless:
                step.nest = step.nest.without(useless)
            if (
                (step.nest is None and step.targets - useless)
                or (step.nest and step.nest.writes)
                or (step.line is not None and (not step.line.makes or draws(step.line.operator)))
            ):
                kept.append(step)
        if len(kept) == len(steps):
            return kept
        steps = kept


def number_stages(steps: list[Step]) -> None:
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


Pair = tuple[Address, Address]


def merged(ops: Ops, producer: Nest, consumer: Nest, limit: int) -> Nest | None:
    """One nest that does the work of both; None where their spaces do not agree.

    `consumer` may read what `producer` writes; such reads must be at the position written.
    Nests of more than `limit` expressions are not made.
    """
    if len(producer.exprs) + len(consumer.exprs) > limit or producer.reads & consumer.targets:
        return None
    if set(producer.axes) & set(consumer.axes):
        consumer = _renamed(ops, consumer)
    links = _links(producer, consumer)
    if links is None:
        return None
    turned = _consumer_hosts(producer, consumer)
    host, guest = (consumer, producer) if turned else (producer, consumer)
    pairs = [(read, write) if turned else (write, read) for read, write in links]
    matching = _matched(Matching(ops.pool), host, guest, pairs)
    if matching is None or not _agree(matching, host, guest):
        return None
    outer, inner = tuple(matching.leaves(host.outer)), tuple(matching.leaves(host.inner))
    new_host = host.placed(ops, matching.host_positions(host.axes), outer, inner)
    new_guest = guest.placed(ops, matching.guest_positions(guest.axes), outer, inner)
    return _joined(ops, new_guest, new_host) if turned else _joined(ops, new_host, new_guest)


def _renamed(ops: Ops, nest: Nest) -> Nest:
    """The nest over axes of its own: nests made from one node share theirs."""
    size = ops.pool.sizes
    names = {axis: ops.pool.axis(size[axis]) for axis in nest.axes}
    at = {axis: Affine(0, (Term(name, 1, size[axis]),)) for axis, name in names.items()}
    outer, inner = tuple(names[a] for a in nest.outer), tuple(names[a] for a in nest.inner)
    return nest.placed(ops, at, outer, inner)


def _links(producer: Nest, consumer: Nest) -> list[Pair] | None:
    """(read, write) of every read of a value that the producer makes; None if one is partial."""
    made = {write.address.buffer: write.address for write in producer.writes}
    links = []
    for load in consumer.loads:
        read = where_of(load)
        if read.buffer in made:
            if digits(made[read.buffer]) is None or read.dtype in NARROW:
                return None
            links.append((read, made[read.buffer]))
    return links


def _consumer_hosts(producer: Nest, consumer: Nest) -> bool:
    if bool(producer.inner) != bool(consumer.inner):
        return bool(consumer.inner)
    return consumer.ordered and not producer.ordered


def _matched(matching: Matching, host: Nest, guest: Nest, pairs: list[Pair]) -> Matching | None:
    for theirs, mine in pairs:
        if not matching.unify(mine, theirs):
            return None
    for theirs, mine in _shared(host, guest):
        trial = matching.copy()
        if trial.unify(mine, theirs) and _levels_agree(trial, host, guest):
            matching = trial
    free = matching.free(guest.axes)
    if not free:
        return matching
    if not pairs and not _same_target(host, guest):
        return None
    if host.inner and not guest.inner and not pairs:
        return _beside_rows(matching, host, guest)
    return matching if _fill_in_order(matching, host, guest) else None


def _same_target(host: Nest, guest: Nest) -> bool:
    """Whether both write parts of one tensor, as the pieces of a `cat` do.

    Beside rows that is one number a row: the other nest then has no axes but theirs.
    """
    return bool(host.targets & guest.targets) and not (host.inner and guest.inner)


def _beside_rows(matching: Matching, host: Nest, guest: Nest) -> Matching | None:
    """Pairs a nest of numbers with the rows beside which it writes them."""
    inner = set(matching.leaves(host.inner))
    for write in host.writes:
        rows = [term for term in write.address.terms if term.by not in inner]
        for number in guest.writes:
            if number.address.buffer != write.address.buffer:
                continue
            trial = matching.copy()
            mine = address(number.address.buffer, number.address.dtype, 0, number.address.terms)
            theirs = address(write.address.buffer, write.address.dtype, 0, rows)
            if trial.unify(mine, theirs) and not trial.free(guest.axes):
                return trial
    return None


def _fill_in_order(matching: Matching, host: Nest, guest: Nest) -> bool:
    """Pairs what shared tensors left open, in row-major order."""
    taken = matching.taken()
    outer = [part for part in matching.leaves(host.outer) if part not in taken]
    inner = [part for part in matching.leaves(host.inner) if part not in taken]
    if guest.inner:
        return matching.in_order(matching.free(guest.outer), outer) and matching.in_order(
            matching.free(guest.inner), inner
        )
    return matching.in_order(matching.free(guest.outer), outer + inner)


def _shared(host: Nest, guest: Nest) -> list[Pair]:
    """(host, guest) addresses of tensors that both read, those with the most axes first."""
    pairs = [
        (where_of(theirs), where_of(mine))
        for mine in guest.loads
        for theirs in host.loads
        if where_of(mine).buffer == where_of(theirs).buffer and where_of(mine).terms
    ]
    return sorted(pairs, key=lambda pair: -len(pair[1].terms))


def _levels_agree(matching: Matching, host: Nest, guest: Nest) -> bool:
    """No outer axis of one is paired with an inner axis of the other, where both reduce."""
    if not guest.inner:
        return True
    outer = set(matching.leaves(host.outer))
    return all(
        (matching.pairs[part][0] in outer) == (part in matching.leaves(guest.outer))
        for part in matching.leaves(guest.axes)
        if part in matching.pairs
    )


def _agree(matching: Matching, host: Nest, guest: Nest) -> bool:
    """Whether the complete pairing is one that a single nest can have."""
    taken = matching.taken()
    outer, inner = set(matching.leaves(host.outer)), set(matching.leaves(host.inner))
    if matching.free(guest.axes) or not outer <= taken:
        return False
    if guest.inner and not inner <= taken:
        return False
    if taken & inner and not inner <= taken:
        return False
    if not _levels_agree(matching, host, guest):
        return False
    return not guest.ordered or _keeps_order(matching, host, guest)


def _keeps_order(matching: Matching, host: Nest, guest: Nest) -> bool:
    pairs = [matching.pairs[part] for part in matching.leaves(guest.inner)]
    names = [name for name, _ in pairs]
    return names == matching.leaves(host.inner) and not any(back for _, back in pairs)


def _joined(ops: Ops, producer: Nest, consumer: Nest) -> Nest:
    """Both nests' writes; what the consumer read of the producer is now a value at hand."""
    made = {write.address: write.value for write in producer.writes}
    values: dict[Expr, Expr] = {
        load: ops.cast(made[where_of(load)], load.dtype)
        for load in consumer.loads
        if where_of(load) in made
    }
    consumer = replaced(ops, consumer, values)
    return Nest(producer.outer, producer.inner, producer.writes + consumer.writes)


def shares(first: Nest, second: Nest) -> bool:
    """Whether two nests read a tensor in common, write parts of one, or are single numbers."""
    single = not first.axes and not second.axes
    return single or bool(first.reads & second.reads) or _same_target(first, second)


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
    paths: Paths = field(init=False)
    # By ids, pairs of nests that share nothing, and for a nest the others with which it could not
    # be merged, one and all; `alive` so that an id is never another's.
    apart: set[tuple[int, int]] = field(default_factory=set, init=False)
    settled: dict[int, tuple[int, ...]] = field(default_factory=dict, init=False)
    alive: list[Nest] = field(default_factory=list, init=False)

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
        for known in (self.alive, self.apart, self.settled):
            known.clear()
        self.paths = Paths(self.steps)
        while self._merge_once(candidates, near, failed):
            self.steps = still_needed(self.steps, self.needed)
            self.paths = Paths(self.steps)

    def _merge_once(self, candidates: Candidates, near: bool, failed: set[tuple[int, int]]) -> bool:
        for first, second in candidates():
            if first.nest is None or second.nest is None or (near and first.stage != second.stage):
                continue
            key = (id(first.nest), id(second.nest))
            if key in failed:
                continue
            new = None
            if not self.paths.lead_around(first, second) and not self._multiplies(
                first.nest, second.nest
            ):
                new = merged(self.context.ops, first.nest, second.nest, MERGE_LIMIT)
            if new is not None and keeps_levels(new) and not self._turns(new):
                first.nest, first.stage = new, max(first.stage, second.stage)
                self.steps.remove(second)
                return True
            failed.add(key)
            self.alive += [first.nest, second.nest]
        return False

    def _multiplies(self, first: Nest, second: Nest) -> bool:
        """Whether one is a product with a loop of its own, and the other reduces as well."""
        both = bool(first.inner) and bool(second.inner)
        return both and self.context.lowering.products and (first.is_product or second.is_product)

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
        nests = [(step, step.nest) for step in self.steps if step.nest is not None]
        ids = tuple(id(nest) for _, nest in nests)
        for at, (first, nest) in enumerate(nests):
            near = ids[at + 1 : at + 33]
            if self.settled.get(ids[at]) == near:
                continue
            for second, other in nests[at + 1 : at + 33]:
                if self._share(nest, other):
                    yield (second, first) if nest.reads & other.targets else (first, second)
            self.settled[ids[at]] = near
            self.alive += [nest, *(other for _, other in nests[at + 1 : at + 33])]

    def _share(self, first: Nest, second: Nest) -> bool:
        """Whether two nests could be one for what they read; asked again after every merge."""
        key = (id(first), id(second))
        if key in self.apart:
            return False
        if not _in_each_others_way(first, second) and shares(first, second):
            return True
        self.apart.add(key)
        self.alive += [first, second]
        return False

    def _turns(self, nest: Nest) -> bool:
        """Whether rows of a channels-last tensor would be written along another axis than read.

        One of both would move a sector for each element, unless a tile of whole rows fits on chip
        and is turned there. Two loops read longer rows twice and move what they need: one reduces
        as the tensor lies, the other turns tiles of it.
        """
        if not self.context.lowering.channels_last:
            return False
        inner = set(nest.inner)
        if self.context.lowering.products and nest.is_product:
            return lies_mixed(nest)
        read = [where for where in map(where_of, nest.loads) if where.axes & inner]
        written = [write.address for write in nest.writes if write.address.axes & inner]
        if not read or not written:
            return False
        first, second = max(read, key=footprint), max(written, key=footprint)
        if fastest(first) in inner and fastest(second) not in inner:
            sizes = self.context.pool.sizes
            return prod(sizes[axis] for axis in inner) > MOST_TURNED
        return 2 * footprint(first) >= footprint(second) and fastest(first) != fastest(second)


class Paths:
    """Which steps lead to which, as sets of bits: a graph may have thousands of steps."""

    def __init__(self, steps: list[Step]) -> None:
        readers: dict[str, list[int]] = {}
        for at, step in enumerate(steps):
            for buffer in step.reads:
                readers.setdefault(buffer, []).append(at)
        self._at = {id(step): at for at, step in enumerate(steps)}
        # A step that reads what it writes itself, in parts, leads nowhere by that.
        self._next = [
            {to for buffer in step.targets for to in readers.get(buffer, ()) if to != at}
            for at, step in enumerate(steps)
        ]
        self._beyond: dict[int, int] = {}

    def lead_around(self, first: Step, second: Step) -> bool:
        """Whether a path leads from one to the other through a third step."""
        one, two = self._at[id(first)], self._at[id(second)]
        return self._leads(one, two) or self._leads(two, one)

    def _leads(self, start: int, end: int) -> bool:
        return any(self._after(to) >> end & 1 for to in self._next[start] if to != end)

    def _after(self, start: int) -> int:
        """The steps behind a step, each a bit."""
        waiting, open_ = [start], set[int]()
        while waiting:
            at = waiting[-1]
            missing = [to for to in self._next[at] if to not in self._beyond]
            if at in self._beyond or not missing:
                self._beyond.setdefault(at, self._joined(at))
                open_.discard(waiting.pop())
            elif at in open_:
                return self._walked(start)  # steps that write parts of what they both read
            else:
                open_.add(at)
                waiting += missing
        return self._beyond[start]

    def _joined(self, at: int) -> int:
        found = 0
        for to in self._next[at]:
            found |= 1 << to | self._beyond.get(to, 0)
        return found

    def _walked(self, start: int) -> int:
        """The same where steps lead back to each other."""
        todo, seen = [*self._next[start]], set[int]()
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += self._next[at]
        return sum(1 << at for at in seen)


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
