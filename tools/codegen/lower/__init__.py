"""Lowering: a traced graph becomes a Program of fused loops and library calls.

`translate` makes one nest of every operator over virtual buffers, `schedule` inlines and merges
them, `layout` orders axes, `statements` prints Loops. Layout is exact: shapes are concrete.
"""

from kernelwright.tools.codegen.lower.driver import lower

__all__ = ["lower"]
