"""The forms a task can be computed in: as written, rewritten by algebra, in another layout.

Each form is a program of its own. The search chooses among forms as among strategies of a loop: by
the roofline first, then by what was measured. The judge decides about a form's rounding as about
any candidate's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agents.playbook.algebra import GraphRewrite, rewritten
from agents.playbook.ir import Loop, PlanLine, Program, Strategy
from agents.playbook.ir.predict import loop_bytes
from agents.playbook.lower import lower
from tools.nouns import Graph, Task

AS_WRITTEN = "as_written"
# Percent of the bytes that a form in one pass may move, to be worth a look.
_ENOUGH_LESS = 95
AS_WRITTEN_TITLE = "the operators as the module wrote them"


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
    written = plain = lower(graph, parameters)
    yield Form(written, _as_written())
    changed, rewrites = rewritten(graph)
    if rewrites:
        plain = lower(changed, parameters)
        yield Form(_named(plain, "A"), _by_algebra(rewrites))
    joined = lower(changed, parameters, one_pass=True) if slides(plain) else plain
    fewer = 100 * _moved(joined) < _ENOUGH_LESS * _moved(plain)
    if fewer:
        yield Form(_named(joined, "O"), _one_pass(rewrites))
    if convolves(written):
        turned = lower(changed, parameters, channels_last=True, one_pass=fewer)
        if convolves(turned):
            yield Form(_named(turned, "C"), _channels_last(rewrites))


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
        title=AS_WRITTEN_TITLE,
        mechanism="the module's own operators, fused where memory allows",
        reason="it rounds as the module does",
        category="algebra",
        metric="time of the whole task",
        memory="as written",
        compute="as written",
        parallel="as written",
    )


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


def slides(program: Program) -> bool:
    """Whether windows (a tensor read at several places) need what another loop of ours makes."""
    made = {store.access.buffer for loop in program.loops for store in loop.stores}
    for loop in program.loops:
        read = [stmt.access.buffer for stmt in loop.body if stmt.access is not None]
        if not loop.inner and len(set(read)) < len(read) and made & set(read):
            return True
    return False


def _moved(program: Program) -> int:
    return sum(sum(loop_bytes(loop)) for loop in program.loops)


def _one_pass(rewrites: tuple[GraphRewrite, ...]) -> Strategy:
    return Strategy(
        name="one_pass",
        title=f"what windows cover is computed in their own loop{_after(rewrites)}",
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


def _after(rewrites: tuple[GraphRewrite, ...]) -> str:
    return " after " + " and ".join(rewrite.title for rewrite in rewrites) if rewrites else ""


def _channels_last(rewrites: tuple[GraphRewrite, ...]) -> Strategy:
    return Strategy(
        name="channels_last",
        title=f"convolutions with channels last{_after(rewrites)}",
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
