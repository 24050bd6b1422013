"""The family that fits every loop: a thread walks each row, in order.

For scans that depend on each other, and the last resort where rows lie across few others.
"""

from __future__ import annotations

from agents.playbook.cuda.case import Case
from agents.playbook.cuda.row_priors import strategy
from agents.playbook.cuda.row_shapes import SERIAL
from agents.playbook.cuda.rows import emit
from agents.playbook.cuda.scans import stands_alone
from agents.playbook.cuda.taking import FEWER_PASSES
from agents.playbook.emit import Fit, LoopFamily
from agents.playbook.ir import Strategy


def _fit(case: Case) -> Fit:
    tangled = not case.nest.pointwise and case.has_scan and not stands_alone(case)
    return Fit.GOOD if tangled else Fit.LAST_RESORT


def _strategies(case: Case) -> list[Strategy]:
    """The one way that fits every mix of scans and reductions."""
    return [strategy(case, SERIAL)]


SERIAL_FAMILY = LoopFamily((SERIAL,), _fit, _strategies, emit, FEWER_PASSES)
