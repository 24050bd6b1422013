"""Which accesses can be made of wide vectors, and how wide; which whole numbers fit 32 bits.

Vectors may begin in one line of a row and end in the next. A plane of 513 x 513 fills no whole
vectors, and beside a bias or a weight of each channel its axes cannot be merged. But what walks a
whole row (of a pointwise loop, the whole space) without a gap moves in vectors of the linear
position, wherever lines end. What does not, like the bias, goes element by element, each at
positions of its own. Not covered: rows that begin at odd addresses, and positions that fall.

Rows may be peeled where they start at different distances from a multiple of 16 bytes, as rows of
an odd length do. As long as every stream of a row starts at the same distance, a thread takes
aligned vectors from the first whole one on, and what lies before it or after the last whole one
goes element by element. Nothing outside the row is touched. Not covered: rows of several walked
axes, and positions of extrema, whose order would change.

PyTorch's integers are 64 bits wide; a GPU's are 32, and twice that costs two to four instructions.
Where the range of a position is known from the extents, and that of everything it comes from,
the narrow type gives the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from kernelwright.tools.codegen.cuda.printing.nest import AxisPlace, Nest
from kernelwright.tools.codegen.ir import ReduceKind, Stmt
from kernelwright.tools.types import DType

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


def _conditional(nest: Nest) -> list[AxisPlace]:
    """The reads that are made only where something holds."""
    return [nest.places[s.name] for s in nest.loop.body if s.op == "load" and s.args]


def _writes_along(nest: Nest, axis: str, heavy: int) -> bool:
    """Whether much is written to neighbours along an axis."""
    return any(
        4 * nest.moved_bytes(place) >= heavy and _steps(place, axis)[-1:] in ((1,), (-1,))
        for place in nest.targets
    )


def _steps(place: AxisPlace, axis: str) -> tuple[int, ...]:
    return place.inner if axis == "walked" else place.outer


def _fitting(nest: Nest, place: AxisPlace, axis: str, width: int) -> int:
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


def crossing_of(nest: Nest, plain: Vectors) -> Vectors | None:
    """Wider vectors than `plain` along the linear position; None where there are none."""
    heavy = nest.heavy()
    conditional = [nest.places[s.name] for s in nest.loop.body if s.op == "load" and s.args]
    if not heavy or any(place in conditional for place in heavy):
        return None
    sizes = [place.dtype.itemsize_bytes for place in heavy]
    width = min(_crossing_fitting(nest, place, MOVED_BYTES) for place in heavy)
    widths = ladder(width, min(sizes), max(sizes)) if width else (0,)
    if widths[0] <= plain.widths[0]:
        return None
    most = max(widths)
    loads = [stmt for stmt in nest.loop.body if stmt.op == "load" and not stmt.args]
    return Vectors(
        axis="walked",
        widths=widths,
        loads=frozenset(
            s.name for s in loads if _crossing_fitting(nest, nest.places[s.name], most) == most
        ),
        stores=frozenset(
            at
            for at, place in enumerate(nest.targets)
            if _crossing_fitting(nest, place, most) == most
        ),
        crossing=True,
    )


def _crossing_fitting(nest: Nest, place: AxisPlace, width: int) -> int:
    """The widest vector, at most `width`, of neighbours in a row; 0 where they have gaps."""
    if nest.linear(place) != 1 or place.gathers:
        return 0
    return gcd(width, nest.columns, place.offset, *place.outer)


# What is left of a strategy's bandwidth where rows are peeled (4.64 ms over rows of 65535 floats
# where 4.6 were expected; one H200).
PEELED = 0.95
_POSITIONS = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
# Shorter rows would spend as much on their ends as on what lies between.
_FEWEST_VECTORS = 64


def peeled_of(nest: Nest, plain: Vectors) -> Vectors | None:
    """Wider vectors than `plain` for rows that are peeled; None where there are none.

    At width 1, the last of `widths`, nothing is peeled.
    """
    if len(nest.walked) != 1 or any(_in_order(stmt) for stmt in nest.loop.body):
        return None
    heavy = nest.heavy()
    if not heavy or any(place.gathers or place.inner != (1,) for place in heavy):
        return None
    width = MOVED_BYTES // max(place.dtype.itemsize_bytes for place in heavy)
    apart = {phase(place, width) for place in heavy}
    if len(apart) > 1 or width <= plain.widths[0] or nest.columns < _FEWEST_VECTORS * width:
        return None
    (common,) = apart
    if any(stmt.args and nest.places[stmt.name] in heavy for stmt in _loads(nest)):
        return None
    fits = [stmt for stmt in _loads(nest) if _follows(nest.places[stmt.name], common, width)]
    return Vectors(
        axis="walked",
        widths=tuple(2**power for power in range(width.bit_length() - 1, -1, -1)),
        loads=frozenset(stmt.name for stmt in fits if not stmt.args),
        stores=frozenset(
            at
            for at, place in enumerate(nest.targets)
            if nest.is_element_store(at) and _follows(place, common, width)
        ),
    )


def phase(place: AxisPlace, width: int) -> tuple[int, ...]:
    """What decides how far a row's start lies from a whole vector of `width` elements."""
    return tuple(step % width for step in (place.offset, *place.outer))


def row_start(nest: Nest, vectors: Vectors) -> AxisPlace:
    """One of the streams that are peeled; all of a row start at its distance."""
    stored = (nest.targets[at] for at in sorted(vectors.stores))
    return next(stored, None) or nest.places[min(vectors.loads)]


def _follows(place: AxisPlace, common: tuple[int, ...], width: int) -> bool:
    return place.inner == (1,) and not place.gathers and phase(place, width) == common


def _loads(nest: Nest) -> list[Stmt]:
    """The loads along rows."""
    body = nest.loop.body
    return [stmt for stmt in body if stmt.op == "load" and nest.levels[stmt.name] == "element"]


def _in_order(stmt: Stmt) -> bool:
    return stmt.op == "scan" or stmt.reduce in _POSITIONS


Range = tuple[int, int]
LIMIT = 1 << 30

_RANGES: Mapping[str, Callable[[Range, Range], Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _spanned([x * y for x in a for y in b]),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def narrow_values(nest: Nest) -> frozenset[str]:
    """The names of the integer statements that, with all they come from, fit 32 bits."""
    known: dict[str, Range] = {}
    for stmt in nest.loop.body:
        found = _range(stmt, nest, known)
        if found is not None and found[0] >= -LIMIT and found[1] < LIMIT:
            known[stmt.name] = found
    return frozenset(known)


def _range(stmt: Stmt, nest: Nest, known: Mapping[str, Range]) -> Range | None:
    if stmt.dtype is not DType.INT64:
        return None
    if stmt.op == "const" and isinstance(stmt.value, int):
        return stmt.value, stmt.value
    if stmt.op == "index":
        return _of_place(nest.places[stmt.name], nest)
    if stmt.op in _RANGES and all(name in known for name in stmt.args):
        a, b = (known[name] for name in stmt.args)
        return _RANGES[stmt.op](a, b)
    return None


def _of_place(place: AxisPlace, nest: Nest) -> Range:
    steps = zip((*nest.kept, *nest.walked), (*place.outer, *place.inner), strict=True)
    ends = [(size - 1) * step for size, step in steps]
    low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return place.offset + low, place.offset + high


def _spanned(values: Sequence[int]) -> Range:
    return min(values), max(values)
