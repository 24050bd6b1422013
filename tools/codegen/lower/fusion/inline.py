"""Inlining: a producer that reduces nothing is computed where it is read, not stored.

A read's address is written in the digits of the producer's store, a mixed-radix number; each
digit is then the position along one of the producer's axes. Slices, flips, transposes and
gathers of a computed value need nothing else. Where an axis of the reader spans two digits
the axis is split; where the digits would carry, the value has to be stored after all.

Matching, also here, finds which axis of one nest is which axis of another, from shared addresses.
Two nests can become one when every axis of the guest is an axis of the host. An address that
both have (a store of one that the other reads, or the same tensor read by both) pairs axes
with equal steps; axes are split into parts where one nest has two axes for the other's one,
and a pair may run in opposite directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from kernelwright.tools.codegen.lower.nests.expressions import Address, Affine, Expr, Pool, Term
from kernelwright.tools.codegen.lower.nests.nest import Nest, substitute, where_of
from kernelwright.tools.codegen.lower.nests.simplify import Ops


@dataclass
class Matching:
    """A partial pairing. `parts` lists what each original axis was split into, in order.

    `pairs` sends a part of a guest axis to a part of a host axis and says whether it runs
    backwards.
    """

    pool: Pool
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pairs: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def copy(self) -> Matching:
        """The same pairing, free to be changed."""
        return Matching(self.pool, dict(self.parts), dict(self.pairs))

    def leaves(self, axes: Sequence[str]) -> list[str]:
        """The parts that axes consist of now, in order."""
        return [part for axis in axes for part in self.parts.get(axis, (axis,))]

    def free(self, guest: Sequence[str]) -> list[str]:
        """Parts of guest axes that have no partner yet."""
        return [part for part in self.leaves(guest) if part not in self.pairs]

    def taken(self) -> set[str]:
        """Parts of host axes that have a partner."""
        return {host for host, _ in self.pairs.values()}

    def unify(self, guest: Address, host: Address) -> bool:
        """Extends the pairing so that both addresses are the same position; False if it cannot.

        When it answers False the pairing may be half changed: work on a copy.
        """
        if any(isinstance(term.by, Expr) for term in (*guest.terms, *host.terms)):
            return False
        while True:
            mine, offset = self._translated(guest)
            theirs = self._terms(host)
            for part in [part for part in mine if part in theirs and mine[part] == theirs[part]]:
                del mine[part], theirs[part]
            if not mine and not theirs:
                return offset == host.offset
            if not mine or not theirs or not self._pair_smallest(mine, theirs):
                return False

    def in_order(self, guest: Sequence[str], host: Sequence[str]) -> bool:
        """Pairs parts in row-major order, splitting where sizes ask for it."""
        guest, host = list(guest), list(host)
        size = self.pool.sizes
        if prod(size[part] for part in guest) != prod(size[part] for part in host):
            return False
        while guest and host:
            low = self._paired(guest[-1], host[-1], backwards=False)
            if low is None:
                return False
            guest[-1:], host[-1:] = low
        return not guest and not host

    def _terms(self, where: Address) -> dict[str, int]:
        """Steps by part."""
        steps: dict[str, int] = {}
        for term in where.terms:
            step = term.step
            for part in reversed(self.leaves([str(term.by)])):
                steps[part] = step
                step *= self.pool.sizes[part]
        return steps

    def _translated(self, guest: Address) -> tuple[dict[str, int], int]:
        """Steps of a guest address, by the host's part where there is one, and its offset."""
        steps: dict[str, int] = {}
        offset = guest.offset
        for part, step in self._terms(guest).items():
            name, backwards = self.pairs.get(part, (part, False))
            if backwards:
                offset += step * (self.pool.sizes[part] - 1)
                step = -step
            steps[name] = steps.get(name, 0) + step
        return {name: step for name, step in steps.items() if step}, offset

    def _pair_smallest(self, mine: dict[str, int], theirs: dict[str, int]) -> bool:
        """Pairs the parts of smallest step on both sides, if they can be partners."""
        guest = min(mine, key=lambda part: abs(mine[part]))
        host = min(theirs, key=lambda part: abs(theirs[part]))
        hosts = self.taken()
        if abs(mine[guest]) != abs(theirs[host]) or host in hosts or guest in hosts:
            return False
        backwards = (mine[guest] < 0) != (theirs[host] < 0)
        return self._paired(guest, host, backwards=backwards) is not None

    def _paired(
        self, guest: str, host: str, *, backwards: bool
    ) -> tuple[list[str], list[str]] | None:
        """Pairs the low ends of two parts; answers what is left of each above that."""
        size = self.pool.sizes
        low = min(size[guest], size[host])
        if max(size[guest], size[host]) % low:
            return None
        # Of a backwards pair the two low parts still mirror each other, and so do the high ones.
        mine, theirs = self._split(guest, low), self._split(host, low)
        self.pairs[mine[-1]] = (theirs[-1], backwards)
        return mine[:-1], theirs[:-1]

    def _split(self, part: str, low: int) -> list[str]:
        size = self.pool.sizes[part]
        if size == low:
            return [part]
        names = [self.pool.axis(size // low), self.pool.axis(low)]
        owner = next((axis for axis, parts in self.parts.items() if part in parts), part)
        parts = list(self.parts.get(owner, (part,)))
        at = parts.index(part)
        self.parts[owner] = (*parts[:at], *names, *parts[at + 1 :])
        return names

    def guest_positions(self, axes: Sequence[str]) -> dict[str, Affine]:
        """Where every guest axis is, in the host's parts."""
        return {axis: self._position(axis, self.pairs) for axis in axes}

    def host_positions(self, axes: Sequence[str]) -> dict[str, Affine]:
        """Where every host axis that was split is, in its parts."""
        return {axis: self._position(axis, {}) for axis in axes if axis in self.parts}

    def _position(self, axis: str, pairs: Mapping[str, tuple[str, bool]]) -> Affine:
        offset, step, terms = 0, 1, list[Term]()
        for part in reversed(self.leaves([axis])):
            size = self.pool.sizes[part]
            name, backwards = pairs.get(part, (part, False))
            offset += step * (size - 1) if backwards else 0
            terms.append(Term(name, -step if backwards else step, size))
            step *= size
        return Affine(offset, tuple(terms))


@dataclass(frozen=True)
class Split:
    """An axis of the reader must become two, the second of size `low`."""

    axis: str
    low: int


@dataclass(frozen=True)
class Digit:
    """One axis of a store: `size` positions, `step` elements apart; `backwards` if negative."""

    axis: str
    size: int
    step: int
    backwards: bool


def digits(store: Address) -> list[Digit] | None:
    """The axes of a store that fills its buffer, the largest step first; None for another."""
    found = _digits(store)
    if found is None or _start(store):
        return None
    sizes = [digit.size for digit in found]
    whole = all(digit.step == prod(sizes[at + 1 :]) for at, digit in enumerate(found))
    return found if whole else None


def _start(store: Address) -> int:
    """The lowest element of a store."""
    return store.offset + sum(min(0, term.step * (term.size - 1)) for term in store.terms)


def _digits(store: Address) -> list[Digit] | None:
    """The axes of a store to a box of its buffer, the largest step first; None for another."""
    found = []
    for term in store.terms:
        if isinstance(term.by, Expr):
            return None
        found.append(Digit(term.by, term.size, abs(term.step), term.step < 0))
    found.sort(key=lambda digit: -digit.step)
    expected = 1
    for digit in reversed(found):
        if digit.step < expected:
            return None
        expected = digit.step * digit.size
    return found


def positions(read: Address, store: Address) -> dict[str, Affine] | Split | None:
    """Where the store's axes are when the read's element was written.

    None when no affine position says it, a Split when it would after that split. The store may
    fill a part of its buffer; what is read beside that part has no position.
    """
    radix = _digits(store)
    if radix is None:
        return None
    low = read.offset + sum(t.step * (t.size - 1) for t in read.terms if t.step < 0)
    low -= _start(store)
    if low < 0:
        return None
    at: dict[str, list[Term]] = {digit.axis: [] for digit in radix}
    start: dict[str, int] = {}
    for digit in radix:
        start[digit.axis], low = divmod(low, digit.step)
    if low or any(start[d.axis] >= d.size for d in radix):
        return None
    reach = dict(start)
    for term in read.terms:
        place = next((d for d in radix if d.step <= abs(term.step)), None)
        if place is None or abs(term.step) % place.step:
            return None
        times = abs(term.step) // place.step
        if times * (term.size - 1) >= place.size:
            return _split(term, place.size, times)
        reach[place.axis] += times * (term.size - 1)
        at[place.axis].append(Term(term.by, times if term.step > 0 else -times, term.size))
    if any(reach[d.axis] >= d.size for d in radix):
        return None
    return {digit.axis: _position(digit, start[digit.axis], at[digit.axis]) for digit in radix}


def _split(term: Term, size: int, times: int) -> Split | None:
    if isinstance(term.by, Expr) or size % times:
        return None
    low = size // times
    return Split(term.by, low) if low > 1 and term.size % low == 0 else None


def _position(digit: Digit, start: int, terms: list[Term]) -> Affine:
    # A negative term counts down from its end, which is where the lowest address was taken.
    offset = start + sum(-term.step * (term.size - 1) for term in terms if term.step < 0)
    if not digit.backwards:
        return Affine(offset, tuple(terms))
    turned = tuple(Term(term.by, -term.step, term.size) for term in terms)
    return Affine(digit.size - 1 - offset, turned)


def inlined(ops: Ops, reader: Nest, load: Expr, producer: Nest) -> Nest | None:
    """The reader with one load replaced by what the producer computes there; None if it cannot.

    Splits axes of the reader where that makes it possible.
    """
    (write,) = producer.writes
    found = positions(where_of(load), write.address)
    if isinstance(found, Split):
        divided = reader.split(ops, found.axis, found.low)
        again = same_load(ops, reader, divided, load)
        return None if again is None else inlined(ops, divided, again, producer)
    if found is None:
        return None
    (value,) = substitute(ops, [write.value], found, producer.exprs)
    value = ops.cast(value, load.dtype)
    return replaced(ops, reader, {load: value})


def same_load(ops: Ops, before: Nest, after: Nest, load: Expr) -> Expr | None:
    """The load as it is after a split; None when it is there no more."""
    (axis,) = set(before.axes) - set(after.axes)
    high, low = (name for name in after.axes if name not in before.axes)
    sizes = ops.pool.sizes
    at = Affine(0, (Term(high, sizes[low], sizes[high]), Term(low, 1, sizes[low])))
    (again,) = substitute(ops, [load], {axis: at})
    return again if again in after.loads else None


def replaced(ops: Ops, nest: Nest, values: dict[Expr, Expr]) -> Nest:
    """The nest with some expressions replaced by others."""
    new = ops.rebuild([write.value for write in nest.writes], values.get, nest.exprs)
    writes = (type(w)(w.address, value) for w, value in zip(nest.writes, new, strict=True))
    return Nest(nest.outer, nest.inner, tuple(writes))
