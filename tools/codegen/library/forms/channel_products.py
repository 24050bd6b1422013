"""The form in which convolutions of single positions are products, beside the library's others.

With channels last the positions of all images are rows of one matrix. What follows such a product
(a norm's scale, an activation, a residual) is done before its results are stored, where a call of
the library leaves it to another pass; windows of several positions stay with the library.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.library.forms.forms import FormKind, Lowerings, calls_of
from kernelwright.tools.codegen.lower import lower

_NAME, _CONVOLUTION = "channel_products", "aten.convolution.default"


def _program(lowerings: Lowerings) -> Program | None:
    before = calls_of(lowerings.plain, {_CONVOLUTION})
    if not before:
        return None
    changed, parameters = lowerings.changed, lowerings.parameters
    program = lower(changed, parameters, channels_last=True, products=True, calls_attention=True)
    return program if calls_of(program, {_CONVOLUTION}) < before else None


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_NAME,
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


CHANNEL_PRODUCTS_FORM = FormKind(_NAME, "G", _program, _idea)
