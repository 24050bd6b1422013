"""The intermediate form: a module as a sequence of loops and library calls.

`loops` holds a fused iteration space and what its values depend on, `program` a whole forward and
a strategy, a way to spread one loop over a machine. `roofline` times a loop, `rewrites` holds
rewrites of loops that hold for every input, and `kernel_family` is the seam that families of
kernels stand behind.
"""

from kernelwright.tools.codegen.ir.loops import (
    OPERATORS,
    Access,
    Axis,
    Loop,
    ReduceKind,
    Stmt,
    Store,
    Stride,
    results,
)
from kernelwright.tools.codegen.ir.program import (
    Buffer,
    Emitted,
    LibraryCall,
    PlanLine,
    Program,
    ProgramNode,
    Strategy,
)

__all__ = [
    "OPERATORS",
    "Access",
    "Axis",
    "Buffer",
    "Emitted",
    "LibraryCall",
    "Loop",
    "PlanLine",
    "Program",
    "ProgramNode",
    "ReduceKind",
    "Stmt",
    "Store",
    "Strategy",
    "Stride",
    "results",
]
