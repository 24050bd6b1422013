"""Which accesses can be made of wide vectors, and how wide."""

from collections import Counter
from dataclasses import dataclass
from math import gcd
from typing import Literal

from kernelwright.tools.codegen.cuda.printing.nest import Nest, Place

MOVED_BYTES = 16  # the widest access that every supported architecture has


@dataclass(frozen=True)
class Vectors:
    """The axis along which a thread takes neighbours, and what moves them in one access.

    `axis` is "walked" (the last walked axis) or "kept" (the last kept one). `widths` are the
    numbers of elements a thread may take at once, the best guess first. `loads` names
    the load statements and `stores` the store indices that become vectors at every width; the
    others access element by element. Where they are `crossing`, they follow the linear position
    and end in another row than they begin in.
    """

    axis: Literal["walked", "kept"]
    widths: tuple[int, ...]
    loads: frozenset[str]
    stores: frozenset[int]
    crossing: bool = False


def vectors_of(nest: Nest, axis: Literal["walked", "kept"]) -> Vectors:
    """The vectors of a nest along one of its last axes.

    Accesses that move little (a weight, a bias) never narrow the others, and neither do reads on a
    condition beside what is written: they go element by element at any width.
    """
    sizes = nest.walked if axis == "walked" else nest.kept
    streams = list(nest.streams())
    # Of a buffer that is read at several places most reads are a cache's; they narrow nothing.
    windows = {name for name, count in Counter(p.buffer for p in streams).items() if count > 1}
    heavy = max(map(nest.moved_bytes, streams), default=0)
    width = gcd(sizes[-1], MOVED_BYTES) if sizes else 1
    narrow, wide = MOVED_BYTES, 1
    scattered = _conditional(nest) if _writes_along(nest, axis, heavy) else []
    for place in streams:
        if place.buffer in windows or 4 * nest.moved_bytes(place) < heavy:
            continue
        if any(place is other for other in scattered):
            continue
        if _steps(place, axis)[-1:] in ((1,), (-1,)):
            # What is found by a gather fits no vector; it still goes element by element.
            width = max(1, min(width, _fitting(nest, place, axis, width)))
            narrow = min(narrow, place.dtype.itemsize_bytes)
            wide = max(wide, place.dtype.itemsize_bytes)
    widths = ladder(width, min(narrow, wide), wide)
    most = max(widths)
    loads = {
        stmt.name
        for stmt in nest.loop.body
        if stmt.op == "load"
        and not stmt.args
        and nest.levels[stmt.name] == "element"
        and _fitting(nest, nest.places[stmt.name], axis, most) == most
    }
    stores = {
        at
        for at, place in enumerate(nest.targets)
        if nest.is_element_store(at) and _fitting(nest, place, axis, most) == most
    }
    return Vectors(axis, widths, frozenset(loads), frozenset(stores))


def ladder(width: int, narrow: int, wide: int) -> tuple[int, ...]:
    """Numbers of elements a thread may take at once, the best guess first.

    Args:
        width: The most that every access fits, a power of two.
        narrow: Bytes of the smallest element that is moved in vectors.
        wide: Bytes of the largest.
    """
    most = min(width, MOVED_BYTES // narrow, 8)
    best = min(most, MOVED_BYTES // wide)
    powers = [2**power for power in range(most.bit_length() - 1, -1, -1)]
    return best, *(n for n in powers if n != best)


def _conditional(nest: Nest) -> list[Place]:
    """The reads that are made only where something holds."""
    return [nest.places[s.name] for s in nest.loop.body if s.op == "load" and s.args]


def _writes_along(nest: Nest, axis: str, heavy: int) -> bool:
    """Whether much is written to neighbours along an axis."""
    return any(
        4 * nest.moved_bytes(place) >= heavy and _steps(place, axis)[-1:] in ((1,), (-1,))
        for place in nest.targets
    )


def _steps(place: Place, axis: str) -> tuple[int, ...]:
    return place.inner if axis == "walked" else place.outer


def _fitting(nest: Nest, place: Place, axis: str, width: int) -> int:
    """The widest vector, at most `width`, that this access can be made of; 0 if not at all."""
    steps = _steps(place, axis)
    if not steps or steps[-1] not in (1, -1):
        return 0
    if any(axis == "kept" or nest.levels[name] == "element" for name, _ in place.gathers):
        return 0
    others = [*place.outer, *place.inner, *(step for _, step in place.gathers)]
    others.remove(steps[-1])
    # A falling vector starts at its last element's address.
    start = place.offset if steps[-1] == 1 else place.offset + 1
    return gcd(width, start, *others)
