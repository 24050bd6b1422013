"""Forms by what products do besides: statistics of a norm, and convolutions of single positions.

With channels last the positions of all images are rows of one matrix, and such a convolution is a
product. What follows it (a norm's scale, an activation, a residual) is done before its results are
stored, where a call of the library leaves it to another pass; windows of several positions stay
with the library.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.ir.roofline import CONVOLUTION
from kernelwright.tools.codegen.library.forms.forms import FormKind, Lowerings, with_fewer_calls
from kernelwright.tools.codegen.lower import Lowering
from kernelwright.tools.codegen.lower.epilogues import with_epilogues
from kernelwright.tools.codegen.lower.operators.convolutions import convolves_positions
from kernelwright.tools.codegen.lower.statistics import with_statistics

STATISTICS, _CHANNELS = "norm_statistics", "channel_products"


def _statistics_program(lowerings: Lowerings) -> Program | None:
    base = lowerings.convolved or lowerings.multiplied
    if base is None:
        return None
    return with_statistics(with_epilogues(base, lowerings.takes), lowerings.takes)


def _statistics_idea(lowerings: Lowerings) -> Strategy:
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


STATISTICS_FORM = FormKind(STATISTICS, "N", _statistics_program, _statistics_idea)


def _channels_program(lowerings: Lowerings) -> Program | None:
    graph = lowerings.changed
    if not any(convolves_positions(graph, node) for node in graph.nodes):
        return None
    asked = Lowering(products=True, channels_last=True, calls_attention=True)
    return with_fewer_calls(lowerings, {CONVOLUTION}, asked)


def _channels_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_CHANNELS,
        title=f"convolutions of single positions as products, with channels last{lowerings.after}",
        mechanism="Images lie with their channels last, so that a convolution of single positions "
        "is a product of matrices like any other, in a kernel of our own: what follows is done "
        "before its results are stored. The library convolves the rest in that layout.",
        reason="such convolutions move more than they compute, and a pass that scales, activates "
        "or adds behind them moves all of it again",
        category="fusion",
        metric="dram bytes",
        memory="channels last, fused products",
        compute="own products, library's convolutions",
        parallel="as written",
    )


CHANNEL_PRODUCTS_FORM = FormKind(_CHANNELS, "G", _channels_program, _channels_idea)

PRODUCT_KINDS = (STATISTICS_FORM, CHANNEL_PRODUCTS_FORM)
