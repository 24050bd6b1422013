"""Neighbouring rows side by side, and the reduced axis cut into segments that threads share."""

from __future__ import annotations

from kernelwright.tools.codegen.cpp.case import Case
from kernelwright.tools.codegen.cpp.columns import emit
from kernelwright.tools.codegen.cpp.frame import Frame
from kernelwright.tools.codegen.cpp.partials import halved
from kernelwright.tools.codegen.cpp.strategies import COLUMNS, COLUMNS_SPLIT
from kernelwright.tools.codegen.cpp.taking import row_family
from kernelwright.tools.codegen.ir import Emitted, Loop


def _emit(case: Case, name: str, prefix: str) -> Emitted:
    function = Frame(case.loop, prefix).function
    halves = halved(case.loop, function, 4 * case.cores)
    first = _half(case, halves.first, f"{function}_partials")
    second = _half(case, halves.second, f"{function}_whole")
    made = tuple(
        f'{item.name} = empty(({item.size},), dtype="{item.dtype.value}")'
        for item in halves.temporaries
    )
    source = f"{first.source}\n{second.source}"
    return Emitted(source=source, plan=(*made, *first.plan, *second.plan))


def _half(case: Case, loop: Loop, prefix: str) -> Emitted:
    return emit(Case(loop, case.hardware), COLUMNS.name, prefix)


COLUMN_SPLIT_FAMILY = row_family(
    (COLUMNS_SPLIT.name,), lambda fits: fits.columns_split, lambda case: [COLUMNS_SPLIT], _emit
)
