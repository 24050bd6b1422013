"""Groups of CUDA families, ways to share a row, and what narrow or scattered accesses cost.

A way to share a row says who works on it, where it stays, and the words for it. A group of families
says which loops it takes and what all its families share.

Narrow and scattered accesses leave a part of a strategy's bandwidth. A row whose elements do not
lie at multiples of 16 bytes is moved in narrower pieces: as many instructions bring fewer bytes, so
that fewer are under way at a time. Elements that lie far from each other move a whole sector each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from kernelwright.tools.codegen.cuda.families.window_walks import (
    Held,
    ReducingFamily,
    nothing_held,
)
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES, Vectors
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily
from kernelwright.tools.codegen.ir.rewrites import LoopRewrite, moments, online_softmax

WARP = "warp_rows"
WARP_TURNED = "warp_rows_turned"
BLOCK_REGISTERS = "block_rows_registers"
BLOCK_SHARED = "block_rows_shared"
BLOCK_STREAM = "block_rows_stream"
CLUSTER_REGISTERS = "cluster_rows_registers"
CLUSTER_STREAM = "cluster_rows_stream"
SERIAL = "thread_rows"
NAMES = (
    WARP,
    BLOCK_REGISTERS,
    BLOCK_SHARED,
    BLOCK_STREAM,
    CLUSTER_REGISTERS,
    CLUSTER_STREAM,
)

# Beyond this, the rows that resident blocks read no longer fit the cache together.
LONG_ROW_BYTES = 128 * KIB


@dataclass(frozen=True)
class Shape:
    """Who shares a row and where it stays."""

    group: str
    keep: str
    title: str
    mechanism: str
    reason: str
    metric: str


SHAPES = {
    SERIAL: Shape(
        "warp",
        "none",
        "A thread a row, in order",
        "Each thread walks its own row from end to end, with several loads in flight, carrying "
        "running values and reductions along.",
        "Running values that feed reductions or other running values are known in order only.",
        "achieved occupancy",
    ),
    WARP: Shape(
        "warp",
        "registers",
        "Several rows a block, each within one warp",
        "A few lanes hold a row in registers and reduce it by shuffles.",
        "A short row leaves a block idle and its barriers exposed; lanes of one warp need "
        "neither barriers nor shared memory.",
        "warp stall at barriers",
    ),
    BLOCK_REGISTERS: Shape(
        "block",
        "registers",
        "A block a row, the row in registers",
        "All loads of a row are issued at once; every later pass runs from registers.",
        "The row is read from memory once however many passes it needs, and nothing is faster "
        "than a register.",
        "dram bytes read",
    ),
    BLOCK_SHARED: Shape(
        "block",
        "shared",
        "A block a row, the row in shared memory",
        "The first pass leaves the row in shared memory; later passes read it there.",
        "Reads the row from memory once where it is too long for registers, or leaves "
        "registers to more resident blocks.",
        "dram bytes read",
    ),
    BLOCK_STREAM: Shape(
        "block",
        "none",
        "A block a row, read again for each pass",
        "A block walks over its row with several vectors in flight, once for each pass.",
        "Works for rows of any length; a second read that the L2 answers costs little.",
        "L2 hit rate",
    ),
    CLUSTER_REGISTERS: Shape(
        "cluster",
        "registers",
        "A cluster a row, the row in registers",
        "The blocks of a cluster hold a share of the row each in registers and exchange "
        "partials through distributed shared memory.",
        "A row too long for one block is still read from memory only once.",
        "dram bytes read",
    ),
    CLUSTER_STREAM: Shape(
        "cluster",
        "none",
        "A cluster a row, read again for each pass",
        "The blocks of a cluster walk over one row together, and again, backwards, for each "
        "later pass; partials go through distributed shared memory.",
        "With a cluster a row few rows are under way at a time, so that the L2 still has them "
        "when they are read again.",
        "L2 hit rate",
    ),
}


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


# From its first load to its last store a block that does little takes about this long: 2.5 to 5 us
# for rows of 64 to 128 floats, 2.9 for tiles of 63 outputs of a pooling window (one H200,
# benchmarks/results/h200/first_candidates.jsonl).
_BLOCK_US = 3.0
_BLOCKS_PER_SM, _THREADS_PER_SM = 24, 1536


def under_way(case: Case, threads: int, block_bytes: float) -> float:
    """The share of bandwidth that blocks of so few bytes can ask for at a time.

    Little's law: what all resident blocks move, over how long each of them takes.

    Args:
        case: On whose device the blocks are.
        threads: Of a block.
        block_bytes: What a block reads and writes.
    """
    device = case.hardware
    most = (device.threads_per_sm or _THREADS_PER_SM) // threads
    resident = max(1, min(device.blocks_per_sm or _BLOCKS_PER_SM, most))
    needed = device.bandwidth_gb_s * 1e3 * _BLOCK_US / case.multiprocessors
    return min(1.0, resident * block_bytes / needed)


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


Propose = Callable[[Case], Sequence[Strategy]]
Printed = Callable[[Case, str, str], Emitted]

# Rewrites that save a pass over the row.
FEWER_PASSES = (
    LoopRewrite(
        name="online_softmax",
        change=online_softmax,
        gain="maximum and sum of exponentials found in one pass",
    ),
    LoopRewrite(
        name="moments", change=moments, gain="mean and squared distances found in one pass"
    ),
)


def elements(case: Case) -> Fit:
    """Loops that reduce nothing."""
    return Fit.GOOD if case.nest.pointwise else Fit.NO


def rows(case: Case) -> Fit:
    """Reductions of rows whose positions lie beside each other."""
    return Fit.GOOD if _reduces(case) and not _across(case) else Fit.NO


def columns(case: Case) -> Fit:
    """Reductions of rows that lie across memory, so that it is neighbours of a row that meet."""
    return Fit.GOOD if _reduces(case) and _across(case) else Fit.NO


def _reduces(case: Case) -> bool:
    return not case.nest.pointwise and not case.has_scan


def _across(case: Case) -> bool:
    return not case.contiguous_rows and bool(case.nest.kept)


def element_family(names: tuple[str, ...], propose: Propose, printed: Printed) -> LoopFamily[Case]:
    """A family for loops that reduce nothing."""
    return LoopFamily(names, elements, propose, printed)


def row_family(
    names: tuple[str, ...],
    propose: Propose,
    printed: Printed,
    held: Callable[[Case, str], Held] = nothing_held,
) -> LoopFamily[Case]:
    """A family whose threads lie along rows; `held` says what a strategy keeps of them."""
    proposed = _gathering(propose, along_rows=True)
    return ReducingFamily(names, rows, proposed, printed, FEWER_PASSES, held=held)


def column_family(
    names: tuple[str, ...],
    propose: Propose,
    printed: Printed,
    held: Callable[[Case, str], Held] = nothing_held,
) -> LoopFamily[Case]:
    """A family whose threads lie across rows; `held` as above."""
    proposed = _gathering(propose, along_rows=False)
    return ReducingFamily(
        names, columns, proposed, printed, FEWER_PASSES, held=held, along_rows=False
    )


def _gathering(propose: Propose, *, along_rows: bool) -> Propose:
    """The same strategies with what is left of bandwidth where threads move elements apart."""

    def proposed(case: Case) -> list[Strategy]:
        return [_gathered(case, one, along_rows=along_rows) for one in propose(case)]

    return proposed


def _gathered(case: Case, one: Strategy, *, along_rows: bool) -> Strategy:
    share = gathered(case, one.name, along_rows=along_rows)
    return one.model_copy(update={"efficiency": round(one.efficiency * share, 4)})
