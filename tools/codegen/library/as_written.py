"""The form that every task has: its own operators, in their own order."""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kind import FormKind
from kernelwright.tools.codegen.library.lowerings import Lowerings

AS_WRITTEN = "as_written"
AS_WRITTEN_TITLE = "the operators as the module wrote them"


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=AS_WRITTEN,
        title=AS_WRITTEN_TITLE,
        mechanism="the module's own operators, fused where memory allows",
        reason="it rounds as the module does",
        category="algebra",
        metric="time of the whole task",
        memory="as written",
        compute="as written",
        parallel="as written",
    )


AS_WRITTEN_FORM = FormKind(AS_WRITTEN, "", lambda lowerings: lowerings.written, _idea)
