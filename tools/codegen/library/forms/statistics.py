"""The form in which products take the statistics of a norm that follows them."""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.library.forms.forms import FormKind, Lowerings
from kernelwright.tools.codegen.lower.epilogues import with_epilogues
from kernelwright.tools.codegen.lower.statistics import with_statistics

STATISTICS = "norm_statistics"


def _program(lowerings: Lowerings) -> Program | None:
    base = lowerings.convolved or lowerings.multiplied
    if base is None:
        return None
    return with_statistics(with_epilogues(base, lowerings.takes), lowerings.takes)


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=STATISTICS,
        title=f"statistics of a norm taken by the product before it{lowerings.after}",
        mechanism="The product's kernel takes the mean and squared distances (or sums) of each of "
        "its tiles as results are stored, with the tile's own mean taken off; a small kernel joins "
        "them in a fixed order and computes what the norm makes of a row. The norm then reads "
        "results once, with its statistics known.",
        reason="a norm behind a product reads what was made twice, or once by kernels that hold "
        "rows; it pays where more than the norm would read results for its statistics, as "
        "windows behind it do",
        category="fusion",
        metric="dram bytes",
        memory="statistics of tiles",
        compute="own products",
        parallel="as written",
    )


STATISTICS_FORM = FormKind(STATISTICS, "N", _program, _idea)
