"""The playbook's intermediate form: a module as a sequence of loops and library calls.

`loops` holds a fused iteration space, `program` a whole forward, `strategy` a way to spread one
over a machine. Beside them: `predict` times a loop by the roofline, `rewrites` change a loop for
all inputs, `loop_label` names one for people, `products` finds products not to be fused.
"""

from agents.playbook.ir.loops import (
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
from agents.playbook.ir.program import Buffer, PlanLine, Program
from agents.playbook.ir.strategy import Emitted, Strategy

__all__ = [
    "OPERATORS",
    "Access",
    "Axis",
    "Buffer",
    "Emitted",
    "Loop",
    "PlanLine",
    "Program",
    "ReduceKind",
    "Stmt",
    "Store",
    "Strategy",
    "Stride",
    "results",
]
