"""Merging two nests into one: a reduction with what follows it, or two readers of one tensor.

The host is the nest whose axes stay: the one with inner axes, or of two such the one whose
order matters. Every axis of the guest must find its partner. A guest that reduces nothing
may be at row level (all outer axes, no inner one) or at element level (all of both).
"""

from __future__ import annotations

from kernelwright.tools.codegen.lower.fusion.inline import digits, replaced
from kernelwright.tools.codegen.lower.fusion.matching import Matching
from kernelwright.tools.codegen.lower.nests.expr import NARROW, Address, Affine, Expr, Term, address
from kernelwright.tools.codegen.lower.nests.nest import Nest, where_of
from kernelwright.tools.codegen.lower.nests.simplify import Ops

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
