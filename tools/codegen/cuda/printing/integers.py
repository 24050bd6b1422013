"""Which whole numbers of a loop fit 32 bits, by the sizes of its axes.

PyTorch's integers are 64 bits wide; a GPU's are 32, and twice that costs two to four instructions.
Where the range of a position is known from the extents, and that of everything it comes from,
the narrow type gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelwright.tools.codegen.cuda.printing.nest import Nest, Place
from kernelwright.tools.codegen.ir import Stmt
from kernelwright.tools.types import DType

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


def _of_place(place: Place, nest: Nest) -> Range:
    steps = zip((*nest.kept, *nest.walked), (*place.outer, *place.inner), strict=True)
    ends = [(size - 1) * step for size, step in steps]
    low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return place.offset + low, place.offset + high


def _spanned(values: Sequence[int]) -> Range:
    return min(values), max(values)
