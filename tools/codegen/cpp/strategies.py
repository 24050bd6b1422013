"""Which ways of spreading a loop over a CPU there are, in words.

How well the families for rows fit a loop, by what its memory looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cpp.case import Case
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily
from kernelwright.tools.codegen.ir.rewrites import LoopRewrite, moments, online_softmax

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
