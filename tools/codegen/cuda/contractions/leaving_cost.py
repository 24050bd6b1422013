"""What results of a product cost on their way out: statements, reads and stores beside the sum.

Tiles that leave registers keep few threads on a multiprocessor, and nothing is multiplied
meanwhile, so what is read and computed for each result is waited for. A residual's read costs a
tile as much as three steps of 64 positions of the depth.

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
