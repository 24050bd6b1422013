"""What a block of `streamed` takes for a tile, with three products of parts or with one.

What one product takes was fitted together with what results cost, and `leaving_cost` says how well.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.contractions.leaving_cost import leaving_us
from kernelwright.tools.codegen.ir.contraction import Contraction

# What a step of 64 positions takes, in us: for each warpgroup, which splits what it multiplies, and
# for every 64 across. Measured on an H200 (benchmarks/results/h200/products).
_STEP_US_DOWN, _STEP_US_ACROSS = 0.50, 0.34
# The same of one product alone, which is bound by what splits; and what 64 across of a tile take
# beside, and a launch until its first step. Fitted with what results cost (`leaving_cost`).
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
