"""Algebra on the traced graph: rewrites that hold for every finite input, each with its proof.

A rewrite changes which operators run, never what is computed apart from rounding. What it needs of
the weights (their sums, their scaled copies) is computed inside every call, never kept between
calls: weights are arguments of a candidate and may change. The search tries a rewritten graph
beside the graph as it was written, and the judge decides by measured error and measured time.
"""

from kernelwright.tools.codegen.algebra.rewrites import REWRITES, loops_as_layers, rewritten

__all__ = ["REWRITES", "loops_as_layers", "rewritten"]
