"""What results of products cost on their way out, and a block of `streamed` for a tile.

Results cost statements, reads and stores beside the sum. Tiles that leave registers keep few
threads on a multiprocessor, and nothing is multiplied meanwhile, so what is read and computed for
each result is waited for. A residual's read costs a tile as much as three steps of 64 positions of
the depth.

Fitted to 21 kernels of `streamed_wgmma` with one product on an H200, together with its steps
(benchmarks/results/h200/model_kernels_convolutions.jsonl): predictions are 0.89 to 1.09 times what
was measured, 6 % off in the root mean square.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir.contraction import Contraction

# Microseconds of a multiprocessor for so many results: for each statement behind the sum, in
# addition for each root or reciprocal, for each tensor that is read at every result, and for each
# store beyond the first. What a result takes in any case belongs to the product.
_RESULTS = 128 * 128
_STATEMENT_US, _DEAR_US, _READ_US, _STORE_US = 0.41, 2.1, 4.2, 4.2
_DEAR = frozenset({"sqrt", "rsqrt", "reciprocal"})


def leaving_us(contraction: Contraction) -> float:
    """Of 16,384 results on one multiprocessor, without what all products take for them."""
    sides = (*contraction.batch, *contraction.rows, *contraction.columns)
    whole = {axis.name for axis in sides if axis.size > 1}
    behind = contraction.epilogue
    accesses = [stmt.access for stmt in behind if stmt.access is not None]
    reads = sum(whole <= {stride.by for stride in one.strides if stride.step} for one in accesses)
    return (
        _STATEMENT_US * len(behind)
        + _DEAR_US * sum(stmt.op in _DEAR for stmt in behind)
        + _READ_US * reads
        + _STORE_US * (len(contraction.stores) - 1)
    )


def leaving_ms(case: Case, contraction: Contraction) -> float:
    """Of all results, shared by all multiprocessors."""
    results = contraction.batches * contraction.m * contraction.n
    return leaving_us(contraction) / 1e3 * results / _RESULTS / case.multiprocessors


# What a step of 64 positions takes, in us: for each warpgroup, which splits what it multiplies, and
# for every 64 across. Measured on an H200 (benchmarks/results/h200/products).
_STEP_US_DOWN, _STEP_US_ACROSS = 0.50, 0.34
# The same of one product alone, which is bound by what splits; and what 64 across of a tile take
# beside, and a launch until its first step. Fitted with what results cost.
_ROUGH_US_DOWN, _ROUGH_US_ACROSS = 0.65, 0.01
_ROUGH_TILE_US_ACROSS, ROUGH_FILLED_MS = 0.74, 0.001


def block_ms(contraction: Contraction, tile: tuple[int, int], steps: float) -> float:
    """What a block takes for a tile: its steps, and its results behind them."""
    down, across = tile
    # A warpgroup has 64 rows of a tile, so that what it computes of results goes by their width.
    results = leaving_us(contraction) * across / 128
    if contraction.is_tf32:
        of_step = (_ROUGH_US_DOWN * down + _ROUGH_US_ACROSS * across) / 64
        return (steps * of_step + _ROUGH_TILE_US_ACROSS * across / 64 + results) / 1e3
    of_step = (_STEP_US_DOWN * down + _STEP_US_ACROSS * across) / 64
    return ((steps + 1) * of_step + results) / 1e3
