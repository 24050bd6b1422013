"""The form in which the library convolves with channels last."""

from __future__ import annotations

from kernelwright.tools.codegen.ir import PlanLine, Program, Strategy
from kernelwright.tools.codegen.library.kind import FormKind
from kernelwright.tools.codegen.library.lowerings import Lowerings
from kernelwright.tools.codegen.lower import lower

_NAME = "channels_last"


def _program(lowerings: Lowerings) -> Program | None:
    if not convolves(lowerings.written):
        return None
    turned = lower(
        lowerings.changed,
        lowerings.parameters,
        channels_last=True,
        one_pass=lowerings.moves_less,
    )
    return turned if convolves(turned) else None


def convolves(program: Program) -> bool:
    """Whether the library convolves something that a loop of ours reads."""
    made = {
        name
        for step in program.steps
        if isinstance(step, PlanLine) and step.operator == "aten.convolution.default"
        for name in step.makes
    }
    loads = (stmt.access for loop in program.loops for stmt in loop.body)
    return any(access is not None and access.buffer in made for access in loads)


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_NAME,
        title=f"convolutions with channels last{lowerings.after}",
        mechanism="The input and the weight are put into channels-last layout in every call, the "
        "library convolves there, and our loops read its result as it lies; what the module "
        "returns is stored in the layout that it returns.",
        reason="libraries convolve faster where the channels of one position lie together, and "
        "need no reordering of their own; it pays where that gains more than the copies cost",
        category="memory",
        metric="time of the library's convolution",
        memory="channels last",
        compute="as written",
        parallel="as written",
    )


CHANNELS_LAST_FORM = FormKind(_NAME, "C", _program, _idea)
