"""The form in which windows compute what they cover in their own loop."""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.library.kind import FormKind
from kernelwright.tools.codegen.library.lowerings import Lowerings

_NAME = "one_pass"


def _program(lowerings: Lowerings) -> Program | None:
    return lowerings.joined if lowerings.moves_less else None


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_NAME,
        title=f"what windows cover is computed in their own loop{lowerings.after}",
        mechanism="A window over normalised rows touches few of them, and no other needs those: "
        "their statistics are taken in the window's own loop, several rows at once; a window over "
        "windows reads all that those cover. Nothing between is stored.",
        reason="one pass over what windows cover instead of two or three, for longer kernels with "
        "more registers a thread",
        category="fusion",
        metric="dram bytes",
        memory="one pass under windows",
        compute="as written",
        parallel="as written",
    )


ONE_PASS_FORM = FormKind(_NAME, "O", _program, _idea)
