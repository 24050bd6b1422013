"""Matching: which axis of one nest is which axis of another, found from shared addresses.

Two nests can become one when every axis of the guest is an axis of the host. An address that
both have (a store of one that the other reads, or the same tensor read by both) pairs axes
with equal steps; axes are split into parts where one nest has two axes for the other's one,
and a pair may run in opposite directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from kernelwright.tools.codegen.lower.nests.expr import Address, Affine, Expr, Pool, Term


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
