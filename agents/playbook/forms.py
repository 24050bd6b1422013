"""The forms a task can be computed in: as written, rewritten by algebra, in another layout.

Each form is a program of its own. The search chooses among forms as among strategies of a loop: by
the roofline first, then by what was measured. The judge decides about a form's rounding as about
any candidate's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agents.playbook.algebra import GraphRewrite, rewritten
from agents.playbook.ir import Loop, Program, Strategy
from agents.playbook.lower import lower
from tools.nouns import Graph, Task

AS_WRITTEN = "as_written"


@dataclass(frozen=True)
class Form:
    """One way to put the whole task, with the words of the idea that it is."""

    program: Program
    idea: Strategy

    @property
    def name(self) -> str:
        """The idea's."""
        return self.idea.name


def forms(task: Task) -> tuple[Form, ...]:
    """Every form of a task that leaves us a loop to write, the one as written first."""
    parameters = tuple(spec.name for spec in task.inputs)
    found = tuple(_forms(task.graph, parameters))
    ours = tuple(form for form in found if form.program.loops)
    return ours or found[:1]


def _forms(graph: Graph, parameters: tuple[str, ...]) -> Iterator[Form]:
    written = lower(graph, parameters)
    yield Form(written, _as_written())
    changed, rewrites = rewritten(graph)
    if rewrites and (program := lower(changed, parameters)).loops:
        yield Form(_named(program, "A"), _by_algebra(rewrites))


def _named(program: Program, prefix: str) -> Program:
    """Loops under names of their own, so that a choice says which form it is about."""
    steps = tuple(
        step.model_copy(update={"name": prefix + step.name}) if isinstance(step, Loop) else step
        for step in program.steps
    )
    return program.model_copy(update={"steps": steps})


def _as_written() -> Strategy:
    return Strategy(
        name=AS_WRITTEN,
        title="the operators as the module wrote them",
        mechanism="the module's own operators, fused where memory allows",
        reason="it rounds as the module does",
        category="algebra",
        metric="time of the whole task",
        memory="as written",
        compute="as written",
        parallel="as written",
    )


def _by_algebra(rewrites: tuple[GraphRewrite, ...]) -> Strategy:
    """The idea of all rewrites that apply; each gives its proof and its conditions."""
    proofs = "; ".join(f"{rewrite.title}: {rewrite.proof}" for rewrite in rewrites)
    conditions = "; ".join(dict.fromkeys(rewrite.conditions for rewrite in rewrites))
    return Strategy(
        name="algebra",
        title=" and ".join(rewrite.title for rewrite in rewrites),
        mechanism=f"{proofs}. What it needs of the weights is computed in every call.",
        reason=f"less work and fewer bytes for the same result up to rounding, given: {conditions}",
        category="algebra",
        metric="time of the whole task",
        memory="rewritten",
        compute="rewritten",
        parallel="rewritten",
    )
