"""How well the families for rows fit a loop, by what its memory looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cpp.case import Case
from kernelwright.tools.codegen.cpp.strategies import scattered
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.family import Fit
from kernelwright.tools.codegen.ir.loops_emit import LoopFamily
from kernelwright.tools.codegen.ir.rewrites import moments, online_softmax
from kernelwright.tools.codegen.ir.rewriting import LoopRewrite

# Rows that a block of columns may have, the best guess first.
WIDTHS = (64, 256, 128, 32)
# A vector loop over a row shorter than two vectors is all overhead.
_SHORT_ROW = 16
# Up to here lanes across rows are worth a try even where rows are contiguous.
_MODEST_ROW = 64
# Rewrites that save a walk over the row.
FEWER_WALKS = (
    LoopRewrite(
        name="online_softmax",
        change=online_softmax,
        gain="maximum and sum of exponentials found in one walk",
    ),
    LoopRewrite(
        name="moments", change=moments, gain="mean and squared distances found in one walk"
    ),
)


@dataclass(frozen=True)
class RowFits:
    """Each family's; all of them print any loop that has rows when asked to."""

    rows: Fit = Fit.ON_REQUEST
    split: Fit = Fit.ON_REQUEST
    columns: Fit = Fit.ON_REQUEST
    columns_split: Fit = Fit.ON_REQUEST


def row_fits(case: Case) -> RowFits:
    """How well the families fit a loop that has rows."""
    loop = case.loop
    if not case.contiguous:
        return _across(case)
    if case.scattered:
        return RowFits(columns=Fit.BEST, rows=Fit.GOOD, split=Fit.FAIR)
    if loop.columns < _SHORT_ROW:
        return RowFits(columns=Fit.BEST, rows=Fit.GOOD)
    if case.is_small:
        return RowFits(rows=Fit.BEST)
    if loop.rows < case.cores:
        return RowFits(split=Fit.BEST)
    columns = Fit.FAIR if loop.columns < _MODEST_ROW else Fit.ON_REQUEST
    if loop.rows < 2 * case.cores:
        return RowFits(split=Fit.BEST, rows=Fit.GOOD, columns=columns)
    return RowFits(rows=Fit.BEST, split=Fit.GOOD, columns=columns)


def _across(case: Case) -> RowFits:
    """Rows that lie across memory."""
    if case.is_small:
        return RowFits(columns=Fit.BEST)
    few = case.loop.rows < 2 * case.cores * WIDTHS[0]
    first, second = (Fit.GOOD, Fit.BEST) if few else (Fit.BEST, Fit.GOOD)
    return RowFits(columns=first, columns_split=second, rows=Fit.FAIR, split=Fit.POOR)


def row_family(
    names: tuple[str, ...],
    fit: Callable[[RowFits], Fit],
    propose: Callable[[Case], Sequence[Strategy]],
    printed: Callable[[Case, str, str], Emitted],
) -> LoopFamily[Case]:
    """A family for loops that have rows; `fit` picks its own among `row_fits`."""

    def takes(case: Case) -> Fit:
        return fit(row_fits(case)) if case.loop.inner else Fit.NO

    def proposed(case: Case) -> Sequence[Strategy]:
        found = propose(case)
        return [scattered(one) for one in found] if case.scattered else found

    return LoopFamily(names, takes, proposed, printed, FEWER_WALKS)
