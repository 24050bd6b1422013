"""The family that fits every loop: a thread walks each row, in order.

For scans that depend on each other, and the last resort where rows lie across few others.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.families.row_priors import strategy
from kernelwright.tools.codegen.cuda.families.row_shapes import SERIAL
from kernelwright.tools.codegen.cuda.families.rows import emit
from kernelwright.tools.codegen.cuda.families.scans import stands_alone
from kernelwright.tools.codegen.cuda.families.taking import FEWER_PASSES
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.ir.family import Fit
from kernelwright.tools.codegen.ir.loops_emit import LoopFamily


def _fit(case: Case) -> Fit:
    tangled = not case.nest.pointwise and case.has_scan and not stands_alone(case)
    return Fit.GOOD if tangled else Fit.LAST_RESORT


def _strategies(case: Case) -> list[Strategy]:
    """The one way that fits every mix of scans and reductions."""
    return [strategy(case, SERIAL)]


SERIAL_FAMILY = LoopFamily((SERIAL,), _fit, _strategies, emit, FEWER_PASSES)
