"""The playbook's intermediate form: a module as a sequence of loops and library calls.

`loops` holds a fused iteration space, `program` a whole forward, `strategy` a way to spread one
over a machine. Beside them: `predict` times a loop by the roofline, `rewriting` says what a rewrite
is and `rewrites` holds those of loops, `loop_label` names a loop for people, `products` finds
products that must not be fused.
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
