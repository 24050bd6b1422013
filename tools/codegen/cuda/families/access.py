"""What narrow and scattered accesses leave of a strategy's bandwidth.

A row whose elements do not lie at multiples of 16 bytes is moved in narrower pieces: as many
instructions bring fewer bytes, so that fewer are under way at a time. Elements that lie far from
each other move a whole sector each.
"""

from collections.abc import Sequence
from math import log

from kernelwright.tools.codegen.cuda.families.row_shapes import WARP, WARP_TURNED
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, Vectors

_MEASURED_BYTES = 4
# A pass that reads 4-byte elements from a sector each, and writes them side by side, kept 0.15 of
# its bandwidth (an H200, benchmarks/results/h200/strategies.jsonl): a sector costs half as much
# again as its bytes.
SECTOR_BYTES, _SECTOR_COST = 32, 1.5


def access_bytes(case: Case, vectors: Vectors) -> int:
    """Bytes of the widest access along a row that is moved in these vectors."""
    streams = [place for place in case.nest.streams() if place.inner[-1:] in ((1,), (-1,))]
    widest = max((place.dtype.itemsize_bytes for place in streams), default=1)
    return min(MOVED_BYTES, vectors.widths[0] * widest)


def narrowed(case: Case, kept: float, vectors: Vectors | None = None) -> float:
    """The share of a strategy's bandwidth that is left in this case.

    Args:
        case: Whose rows are read or written along their last axis.
        kept: The share that was measured with accesses of 4 bytes; other widths are taken to
            lie on the same curve, 1 at 16 bytes, with the same factor for each halving.
        vectors: What moves the rows; None for the case's own.
    """
    width = access_bytes(case, vectors or case.along_rows)
    return float(kept ** log(MOVED_BYTES / width, MOVED_BYTES / _MEASURED_BYTES))


def gathered(case: Case, name: str, *, along_rows: bool) -> float:
    """The share of bandwidth that is left where threads that lie together read or write apart.

    Args:
        case: Whose elements are moved.
        name: The strategy's. Warps of a block take neighbouring rows: what they need of a sector
            they find in their multiprocessor's cache, but what they write goes on to the next one;
            tiles of rows are written as they lie.
        along_rows: Whether threads lie along rows, else across them.
    """
    nest = case.nest
    moved: dict[str, tuple[int, float]] = {}
    for place in nest.streams():
        steps, sizes = (place.inner, nest.walked) if along_rows else (place.outer, nest.kept)
        itemsize = place.dtype.itemsize_bytes
        strategy = WARP_TURNED if place in nest.targets else WARP
        together = name.startswith(strategy) and _is_near(place.outer, itemsize)
        dear = 1.0 if place.gathers or together else _sectors(steps, sizes, itemsize)
        if name.startswith(WARP) and _is_near(place.outer, itemsize):
            dear = max(1.0, dear * _lanes(case) / 32)
        size, least = moved.get(place.buffer, (0, dear))
        moved[place.buffer] = max(size, nest.span(place) * itemsize), min(dear, least)
    total = sum(size for size, _ in moved.values())
    return total / sum(size * dear for size, dear in moved.values()) if total else 1.0


def _lanes(case: Case) -> int:
    """Lanes that share a row: a warp's other lanes take the next rows, and write beside them."""
    return min(32, max(1, case.nest.columns // case.along_rows.widths[0] // 2))


def _sectors(steps: Sequence[int], sizes: Sequence[int], itemsize: int) -> float:
    """How many times its bytes an access costs along these axes; 1 where sectors are used up.

    A step of less than a sector counts as none: other accesses take what lies between.
    """
    run = 1
    for step, size in zip(reversed(steps), reversed(sizes), strict=True):
        if abs(step) != run:
            break
        run *= size
    near = run == 1 and _is_near(steps, itemsize)
    if not steps or near or run * itemsize >= SECTOR_BYTES:
        return 1.0
    return _SECTOR_COST * SECTOR_BYTES / (run * itemsize)


def _is_near(steps: Sequence[int], itemsize: int) -> bool:
    """Whether neighbours along the last of these axes share a sector."""
    return bool(steps) and abs(steps[-1]) * itemsize < SECTOR_BYTES
