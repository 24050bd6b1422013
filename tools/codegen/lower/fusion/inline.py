"""Inlining: a producer that reduces nothing is computed where it is read, not stored.

A read's address is written in the digits of the producer's store, a mixed-radix number; each
digit is then the position along one of the producer's axes. Slices, flips, transposes and
gathers of a computed value need nothing else. Where an axis of the reader spans two digits
the axis is split; where the digits would carry, the value has to be stored after all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.lower.nests.expr import Address, Affine, Expr, Term
from kernelwright.tools.codegen.lower.nests.nest import Nest, substitute, where_of
from kernelwright.tools.codegen.lower.nests.simplify import Ops


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
    (value,) = substitute(ops, [write.value], found)
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
    new = ops.rebuild([write.value for write in nest.writes], values.get)
    writes = (type(w)(w.address, value) for w, value in zip(nest.writes, new, strict=True))
    return Nest(nest.outer, nest.inner, tuple(writes))
