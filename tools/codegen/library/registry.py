"""The registry of the kinds of forms, in the order in which they are listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.tools.codegen.ir import Program
from kernelwright.tools.codegen.ir.rewriting import GraphRewrite
from kernelwright.tools.codegen.library.as_written import AS_WRITTEN_FORM
from kernelwright.tools.codegen.library.by_algebra import ALGEBRA_FORM
from kernelwright.tools.codegen.library.channels_last import CHANNELS_LAST_FORM
from kernelwright.tools.codegen.library.kind import Form, FormKind
from kernelwright.tools.codegen.library.lowerings import Lowerings
from kernelwright.tools.codegen.library.one_pass import ONE_PASS_FORM
from kernelwright.tools.types import Task

FORM_KINDS: tuple[FormKind, ...] = (
    AS_WRITTEN_FORM,
    ALGEBRA_FORM,
    ONE_PASS_FORM,
    CHANNELS_LAST_FORM,
)


def _has_loops(program: Program) -> bool:
    return bool(program.loops)


def forms(
    task: Task,
    more: Sequence[GraphRewrite] = (),
    *,
    kinds: Sequence[FormKind] = FORM_KINDS,
    is_ours: Callable[[Program], bool] = _has_loops,
) -> tuple[Form, ...]:
    """Every form of a task that leaves us something to write, the one as written first.

    Args:
        task: The traced task.
        more: Rewrites of the graph besides those of `algebra`, which families of kernels bring.
        kinds: The kinds of forms to try.
        is_ours: Whether a program leaves us something to write.

    Returns:
        The forms; the first alone, where none leaves us anything.
    """
    parameters = tuple(spec.name for spec in task.inputs)
    lowerings = Lowerings(task.graph, parameters, tuple(more))
    tried = (kind.form(lowerings) for kind in kinds)
    found = tuple(form for form in tried if form is not None)
    ours = tuple(form for form in found if is_ours(form.program))
    return ours or found[:1]
