"""Which loops the groups of CUDA's families take, and what all families of a group share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.tools.codegen.cuda.families.access import gathered
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.family import Fit
from kernelwright.tools.codegen.ir.loops_emit import LoopFamily
from kernelwright.tools.codegen.ir.rewrites import moments, online_softmax
from kernelwright.tools.codegen.ir.rewriting import LoopRewrite

Propose = Callable[[Case], Sequence[Strategy]]
Printed = Callable[[Case, str, str], Emitted]

# Rewrites that save a pass over the row.
FEWER_PASSES = (
    LoopRewrite(
        name="online_softmax",
        change=online_softmax,
        gain="maximum and sum of exponentials found in one pass",
    ),
    LoopRewrite(
        name="moments", change=moments, gain="mean and squared distances found in one pass"
    ),
)


def elements(case: Case) -> Fit:
    """Loops that reduce nothing."""
    return Fit.GOOD if case.nest.pointwise else Fit.NO


def rows(case: Case) -> Fit:
    """Reductions of rows whose positions lie beside each other."""
    return Fit.GOOD if _reduces(case) and not _across(case) else Fit.NO


def columns(case: Case) -> Fit:
    """Reductions of rows that lie across memory, so that it is neighbours of a row that meet."""
    return Fit.GOOD if _reduces(case) and _across(case) else Fit.NO


def _reduces(case: Case) -> bool:
    return not case.nest.pointwise and not case.has_scan


def _across(case: Case) -> bool:
    return not case.contiguous_rows and bool(case.nest.kept)


def element_family(names: tuple[str, ...], propose: Propose, printed: Printed) -> LoopFamily[Case]:
    """A family for loops that reduce nothing."""
    return LoopFamily(names, elements, propose, printed)


def row_family(names: tuple[str, ...], propose: Propose, printed: Printed) -> LoopFamily[Case]:
    """A family whose threads lie along rows."""
    return LoopFamily(names, rows, _gathering(propose, along_rows=True), printed, FEWER_PASSES)


def column_family(names: tuple[str, ...], propose: Propose, printed: Printed) -> LoopFamily[Case]:
    """A family whose threads lie across rows."""
    return LoopFamily(names, columns, _gathering(propose, along_rows=False), printed, FEWER_PASSES)


def _gathering(propose: Propose, *, along_rows: bool) -> Propose:
    """The same strategies with what is left of bandwidth where threads move elements apart."""

    def proposed(case: Case) -> list[Strategy]:
        return [_gathered(case, one, along_rows=along_rows) for one in propose(case)]

    return proposed


def _gathered(case: Case, one: Strategy, *, along_rows: bool) -> Strategy:
    share = gathered(case, one.name, along_rows=along_rows)
    return one.model_copy(update={"efficiency": round(one.efficiency * share, 4)})
