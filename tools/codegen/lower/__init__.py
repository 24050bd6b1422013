"""Lowering: a traced graph becomes a Program of fused loops and library calls.

`operators/` makes one nest of every operator over virtual buffers, `fusion/` inlines and merges
them, `nests/` is what they are made of and prints Loops, `driver` goes the whole way. Layout is
exact: shapes are concrete.
"""

from kernelwright.tools.codegen.lower.driver import lower
from kernelwright.tools.codegen.lower.nests.context import Lowering

__all__ = ["Lowering", "lower"]
