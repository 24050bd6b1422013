"""Which ways of spreading a loop over a CPU there are, in words."""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Strategy

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
