"""A form of a task in which weighted windows are sums over an axis, however large they are.

Written out, a window is a term for each of its positions: large ones make long kernels, and several
of them over the same images more than one. As reductions they fit in one loop, with all that is
made of them. It exists where outputs then share what they read.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Loop, Program, Strategy
from kernelwright.tools.codegen.ir.sliding import overlaps, sliding_sums
from kernelwright.tools.codegen.library.forms import FormKind, Lowerings
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.codegen.lower.operators.sliding import weighs_windows

_SUMMED = "summed_windows"


def _program(lowerings: Lowerings) -> Program | None:
    graph = lowerings.changed
    if not any(weighs_windows(graph, node) for node in graph.nodes):
        return None
    program = lower(graph, lowerings.parameters, sums_windows=True)
    sums = [loop for loop in program.loops if _reduces(loop) and overlaps(loop)]
    return program if sums and all(sliding_sums(loop) is not None for loop in sums) else None


def _reduces(loop: Loop) -> bool:
    return any(stmt.op == "reduce" for stmt in loop.body)


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_SUMMED,
        title=f"windows summed together where they see the same{lowerings.after}",
        mechanism="Weighted windows are sums over the window's positions in one loop: what they "
        "read and the products that they weigh are at hand for all of them, and what is made of "
        "the sums follows there.",
        reason="images are read once for all windows, and nothing between is stored; a kernel of "
        "sums stays short however large the window is",
        category="fusion",
        metric="dram bytes",
        memory="windows together",
        compute="sums over windows",
        parallel="as written",
    )


SUMMED_WINDOWS_FORM = FormKind(_SUMMED, "B", _program, _idea)
