"""A form of a task, and what makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.tools.codegen.ir import Loop, PlanLine, Program, Strategy
from kernelwright.tools.codegen.library.lowerings import Lowerings


@dataclass(frozen=True)
class Form:
    """One way to put the whole task, with the words of the idea that it is."""

    program: Program
    idea: Strategy

    @property
    def name(self) -> str:
        """The idea's."""
        return self.idea.name


@dataclass(frozen=True)
class FormKind:
    """One alternative for a whole task.

    `program` answers None where it does not apply; `prefix` starts the names of its loops, so that
    a choice says which form it is about.
    """

    name: str
    prefix: str
    program: Callable[[Lowerings], Program | None]
    idea: Callable[[Lowerings], Strategy]

    def form(self, lowerings: Lowerings) -> Form | None:
        """The form of a task; None where it has none of this kind."""
        program = self.program(lowerings)
        if program is None:
            return None
        named = _named(program, self.prefix) if self.prefix else program
        return Form(named, self.idea(lowerings))


def _named(program: Program, prefix: str) -> Program:
    steps = tuple(_named_step(step, prefix) for step in program.steps)
    return program.model_copy(update={"steps": steps})


def _named_step(step: Loop | PlanLine, prefix: str) -> Loop | PlanLine:
    if isinstance(step, PlanLine):
        return step.model_copy(update={"name": prefix + step.makes[0]}) if step.makes else step
    return step.model_copy(update={"name": prefix + step.name})
