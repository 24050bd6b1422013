"""The ways of spreading a loop over a CPU, in words, and what decides between them.

How a loop lies in memory, as far as choosing a strategy needs to know; one node on one CPU
(`Case`): what its families decide by, and the tunables that they share; and how well the families
for rows fit a loop, by what its memory looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cpp.frame import Frame, Knobs
from kernelwright.tools.codegen.ir import Access, Axis, Emitted, Loop, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily, NodeCase
from kernelwright.tools.codegen.ir.rewrites import LoopRewrite, moments, online_softmax

_FAR = 1 << 62


def written_bytes(loop: Loop) -> int:
    """Bytes of everything stored."""
    return sum(_touched(loop, store.access) for store in loop.stores)


def contiguous_inside(loop: Loop) -> bool:
    """Whether most of the loop's elements lie along inner axes."""
    votes = 0
    for access in accesses(loop):
        inside, outside = _nearest(access, loop.inner), _nearest(access, loop.outer)
        if inside != outside:
            touched = _touched(loop, access)
            votes += touched if inside < outside else -touched
    return votes >= 0


def stored_across(loop: Loop) -> bool:
    """Whether most of what is stored along rows lies beside what the next row stores."""
    votes = 0
    for access in (store.access for store in loop.stores):
        inside, outside = _nearest(access, loop.inner), _nearest(access, loop.outer)
        if inside != _FAR:
            votes += _touched(loop, access) * (1 if outside < inside else -1)
    return votes > 0


def _nearest(access: Access, axes: tuple[Axis, ...]) -> int:
    """The smallest step along some axes; far where the access stays."""
    return min((abs(access.step(axis.name)) or _FAR for axis in axes), default=_FAR)


def walks_from_memory(loop: Loop, hardware: Hardware) -> float:
    """How often a row is read from memory: once where it fits a core's own cache."""
    row = sum(
        access.dtype.itemsize_bytes * prod(a.size for a in loop.inner if access.step(a.name))
        for access in accesses(loop)
    )
    if row <= (hardware.l2_kib_per_core or 512) * 1024:
        return 1.0
    return 1.0 + max(loop.passes().values(), default=0)


def accesses(loop: Loop) -> tuple[Access, ...]:
    """Everything that the loop reads or writes."""
    loads = [stmt.access for stmt in loop.body if stmt.access is not None]
    return (*loads, *(store.access for store in loop.stores))


def _touched(loop: Loop, access: Access) -> int:
    axes = (*loop.outer, *loop.inner)
    return access.dtype.itemsize_bytes * prod(a.size for a in axes if access.step(a.name))


_CHUNKS = (2048, 8192)
# Below this many positions a parallel region costs more than it gains, and so does tuning.
_SMALL = 1 << 14


@dataclass(frozen=True)
class Case(NodeCase):
    """A node, and the limits of the CPU it is for; all that is said of rows is said of a loop."""

    @property
    def cores(self) -> int:
        """Cores of the CPU."""
        return self.hardware.cores or 1

    @cached_property
    def is_small(self) -> bool:
        """Whether there is too little to do for several threads."""
        return self.loop.rows * max(1, self.loop.columns) < _SMALL

    @cached_property
    def walks(self) -> float:
        """How often a row is read from memory."""
        return walks_from_memory(self.loop, self.hardware)

    @cached_property
    def contiguous(self) -> bool:
        """Whether most elements lie along rows."""
        return contiguous_inside(self.loop)

    @cached_property
    def scattered(self) -> bool:
        """Whether rows are read along one axis and stored along another."""
        return self.contiguous and not self.is_small and stored_across(self.loop)

    def knobs(self, frame: Frame, size: int, *, segments: bool = False) -> Knobs:
        """The tunables of a loop whose rows have `size` positions; segments are parts already."""
        lanes = [width for width in (32, 16) if width <= size] or [8 if size >= 8 else 1]
        limit = min(_CHUNKS)
        chunks = [chunk for chunk in _CHUNKS if chunk < size]
        if self.is_small:
            lanes, chunks = lanes[:1], chunks[:1]
        return Knobs(
            lanes=frame.tune("LANES", lanes),
            chunk=frame.tune("CHUNK", chunks) if size > limit else str(limit),
            chunk_limit=limit,
            parts="" if segments else self.parts(frame),
            stream=self._streaming(frame),
        )

    def parts(self, frame: Frame) -> str:
        """Threads take pieces as they come free: another process on a core then costs little.

        As many pieces as cores keep each thread in one stretch of memory instead.
        """
        counts = (64, self.cores)
        return frame.tune("PARTS", counts[:1] if self.is_small else counts)

    def _streaming(self, frame: Frame) -> str:
        """The tunable for stores past the cache, where results are large; "" elsewhere."""
        written = written_bytes(frame.loop)
        if written < 1 << 20:
            return ""
        past = written > self.hardware.cache_mib * (1 << 20)
        return frame.tune("STREAM", (1, 0) if past else (0, 1))


def emitted(frame: Frame, source: str) -> Emitted:
    """A kernel and the plan line that launches it."""
    comma = "," if len(frame.arguments) == 1 else ""
    launch = f'launch("{frame.function}", args=({", ".join(frame.arguments)}{comma}))'
    return Emitted(source=source, plan=(launch,))


FLAT = Strategy(
    name="flat",
    title="one pass, vectors over consecutive elements",
    mechanism="every thread computes a run of consecutive elements, whole chain in registers",
    reason="intermediate results never reach memory; inputs are read and outputs written once",
    category="fusion",
    metric="bytes moved",
    memory="streaming",
    compute="vector",
    parallel="element ranges",
)
ROWS_KEPT = Strategy(
    name="rows_kept",
    title="rows in parallel, intermediate values kept in the core's cache",
    mechanism="a thread walks its row out of cache; what a later walk needs again (an exponential, "
    "a sum of inputs) is kept in a row buffer",
    reason="each element is read from memory once and costly functions are evaluated once",
    category="memory",
    metric="cache misses",
    memory="row buffer in cache",
    compute="vector",
    parallel="rows",
    efficiency=0.85,
)
ROWS = Strategy(
    name="rows",
    title="rows in parallel, each walked again for every reduction",
    mechanism="a thread walks its row once a reduction, recomputing instead of keeping",
    reason="no buffer competes with the row for cache; recomputing cheap values beats storing them",
    category="memory",
    metric="cache misses",
    memory="re-read",
    compute="vector",
    parallel="rows",
)
SPLIT = Strategy(
    name="split",
    title="rows cut into segments that threads share",
    mechanism="threads walk segments of a row and leave partial results, merged in a fixed order",
    reason="few long rows would leave cores idle",
    category="parallelism",
    metric="busy cores",
    memory="re-read",
    compute="vector",
    parallel="segments of rows",
    launches=1,
)
COLUMNS = Strategy(
    name="columns",
    title="neighbouring columns as vector lanes",
    mechanism="a block of columns is reduced together, one accumulator a lane, walking memory in "
    "contiguous pieces",
    reason="the reduced axis is not contiguous; along it every vector would be gathered",
    category="memory",
    metric="cache misses",
    memory="re-read",
    compute="vector over columns",
    parallel="blocks of columns",
    efficiency=0.7,
)
COLUMNS_KEPT = COLUMNS.model_copy(
    update={
        "name": "columns_kept",
        "title": "neighbouring columns as vector lanes, values kept for later walks",
        "mechanism": "as with columns, and what a later walk needs again is kept in cache",
        "reason": "costly functions are evaluated once, out of cache the second time",
        "memory": "column block in cache",
    }
)


COLUMNS_SPLIT = COLUMNS.model_copy(
    update={
        "name": "columns_split",
        "title": "neighbouring columns as vector lanes, in segments that threads share",
        "mechanism": "segments of the reduced axis leave partial results for each column, which a "
        "second, small loop combines",
        "reason": "too few columns to keep every core busy",
        "category": "parallelism",
        "metric": "busy cores",
        "parallel": "segments of columns",
        "launches": 2,
    }
)

EVERY = (FLAT, ROWS_KEPT, ROWS, SPLIT, COLUMNS_KEPT, COLUMNS, COLUMNS_SPLIT)


def walking(strategy: Strategy, walks: float) -> Strategy:
    """The strategy for a loop whose rows are read from memory so many times."""
    return strategy.model_copy(update={"bytes_read_factor": walks}) if walks > 1 else strategy


# What is left where rows are read along one axis and stored along another, so that one of both goes
# element by element, each in a line of its own: 36 MB took some 6.5 ms in columns, 7.5 row by row,
# where 1.0 and 0.84 were predicted (a softmax of 70,688 rows of 64, two cores of an x86).
_SCATTERED = 0.15


def scattered(strategy: Strategy) -> Strategy:
    """The strategy for rows whose results lie across them."""
    return strategy.model_copy(update={"efficiency": round(_SCATTERED * strategy.efficiency, 3)})


# Rows that a block of columns may have, the best guess first.
WIDTHS = (64, 256, 128, 32)
# A vector loop over a row shorter than two vectors is all overhead.
_SHORT_ROW = 16
# Up to here lanes across rows are worth a try even where rows are contiguous.
_MODEST_ROW = 64
# Rewrites that save a walk over the row.
FEWER_WALKS = (
    LoopRewrite(
        name="online_softmax",
        change=online_softmax,
        gain="maximum and sum of exponentials found in one walk",
    ),
    LoopRewrite(
        name="moments", change=moments, gain="mean and squared distances found in one walk"
    ),
)


@dataclass(frozen=True)
class RowFits:
    """Each family's; all of them print any loop that has rows when asked to."""

    rows: Fit = Fit.ON_REQUEST
    split: Fit = Fit.ON_REQUEST
    columns: Fit = Fit.ON_REQUEST
    columns_split: Fit = Fit.ON_REQUEST


def row_fits(case: Case) -> RowFits:
    """How well the families fit a loop that has rows."""
    loop = case.loop
    if not case.contiguous:
        return _across(case)
    if case.scattered:
        return RowFits(columns=Fit.BEST, rows=Fit.GOOD, split=Fit.FAIR)
    if loop.columns < _SHORT_ROW:
        return RowFits(columns=Fit.BEST, rows=Fit.GOOD)
    if case.is_small:
        return RowFits(rows=Fit.BEST)
    if loop.rows < case.cores:
        return RowFits(split=Fit.BEST)
    columns = Fit.FAIR if loop.columns < _MODEST_ROW else Fit.ON_REQUEST
    if loop.rows < 2 * case.cores:
        return RowFits(split=Fit.BEST, rows=Fit.GOOD, columns=columns)
    return RowFits(rows=Fit.BEST, split=Fit.GOOD, columns=columns)


def _across(case: Case) -> RowFits:
    """Rows that lie across memory."""
    if case.is_small:
        return RowFits(columns=Fit.BEST)
    few = case.loop.rows < 2 * case.cores * WIDTHS[0]
    first, second = (Fit.GOOD, Fit.BEST) if few else (Fit.BEST, Fit.GOOD)
    return RowFits(columns=first, columns_split=second, rows=Fit.FAIR, split=Fit.POOR)


def row_family(
    names: tuple[str, ...],
    fit: Callable[[RowFits], Fit],
    propose: Callable[[Case], Sequence[Strategy]],
    printed: Callable[[Case, str, str], Emitted],
) -> LoopFamily[Case]:
    """A family for loops that have rows; `fit` picks its own among `row_fits`."""

    def takes(case: Case) -> Fit:
        return fit(row_fits(case)) if case.loop.inner else Fit.NO

    def proposed(case: Case) -> Sequence[Strategy]:
        found = propose(case)
        return [scattered(one) for one in found] if case.scattered else found

    return LoopFamily(names, takes, proposed, printed, FEWER_WALKS)
