"""The playbook's repertoire for one task: lowered, spread by an emitter, timed by the roofline.

A repertoire knows every option of a task: which strategy for which loop, and what the model of the
machine says. A recipe is what an idea remembers so that the coder can write it down later. Which
idea comes when is the planner's business.

A task may have several forms (as written, rewritten by algebra, in another layout). Which one is
an option like any other, of a loop called `form`; loops belong to one form each.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import (
    LibraryCall,
    Loop,
    PlanLine,
    Program,
    ProgramNode,
    Strategy,
)
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY, Emitter
from kernelwright.tools.codegen.ir.roofline import line_ms
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.library.emitters import (
    RememberingEmitter,
    emitter_for,
    keeps_up,
    kinds_of,
    lacks_kernels,
)
from kernelwright.tools.codegen.library.forms.forms import Form, forms
from kernelwright.tools.codegen.library.prepare import with_prepared_weights
from kernelwright.tools.runtime import collector_paused
from kernelwright.tools.types import Idea, LanguageName, Task, Value

FORM = "form"
# What a candidate declares whose float32 products round their factors.
ROUNDED_FACTORS = "factors=rounded"


class Option(Value):
    """One strategy that fits one loop; `predicted_ms` is the loop's time, not the task's.

    Loops that are alike, those of equal layers, have their options together: `loop` is the first of
    them, `others` are the rest, and the time is that of all. `form` is the form that the loop
    belongs to, "" where a task has only one. An option of the loop `form` stands for a whole form;
    its time is that of what the form leaves to the library, and `unlike_ms` the part of it that the
    form predicted fastest does not have.
    """

    loop: str
    family: str
    strategy: Strategy
    predicted_ms: float
    form: str = ""
    unlike_ms: float = 0.0
    others: tuple[str, ...] = ()

    @property
    def loops(self) -> tuple[str, ...]:
        """Every loop that it is for."""
        return (self.loop, *self.others)

    @property
    def change(self) -> dict[str, str]:
        """What a task's choices become by it: its strategy for each of its loops."""
        return dict.fromkeys(self.loops, self.strategy.name)

    def only(self, loops: Collection[str]) -> "Option":
        """The same for some of its loops, in their part of its time."""
        kept = tuple(loop for loop in self.loops if loop in loops)
        if kept == self.loops:
            return self
        part = self.predicted_ms * len(kept) / len(self.loops)
        return self.model_copy(update={"loop": kept[0], "others": kept[1:], "predicted_ms": part})

    @property
    def texts(self) -> tuple[str, ...]:
        """The words by which a person or a critic may speak of it."""
        chosen = self.strategy
        labels = (f"memory={chosen.memory}", f"compute={chosen.compute}")
        return (
            *labels,
            f"parallel={chosen.parallel}",
            *(f"{loop}={chosen.name}" for loop in self.loops),
            chosen.name,
            chosen.category,
            chosen.title,
            chosen.mechanism,
            self.family,
        )

    @property
    def cell(self) -> tuple[str, str, str]:
        """Its place in the archive of behaviours."""
        return self.strategy.memory, self.strategy.compute, self.strategy.parallel


def fastest(options: Iterable[Option]) -> dict[str, str]:
    """The strategy predicted fastest for every loop of the form predicted fastest."""
    best: dict[str, Option] = {}
    totals: dict[str, float] = {}
    every = tuple(options)
    for option in every:
        held = best.get(option.loop)
        if option.loop == FORM:
            totals[option.strategy.name] = option.predicted_ms
        elif held is None or option.predicted_ms < held.predicted_ms:
            best[option.loop] = option
    for option in best.values():
        if option.form:
            totals[option.form] += option.predicted_ms
    chosen = {loop: name for option in best.values() for loop, name in option.change.items()}
    if totals:
        chosen[FORM] = min(totals, key=lambda form: totals[form])
    return in_form(every, chosen)


def in_form(options: Iterable[Option], chosen: Mapping[str, str]) -> dict[str, str]:
    """The choices for the loops of the chosen form; a loop without one takes the fastest."""
    form = chosen.get(FORM, "")
    result: dict[str, str] = {}
    least: dict[str, float] = {}
    for option in options:
        if option.form not in ("", form):
            continue
        for name in option.loops:
            if name in chosen:
                result[name] = chosen[name]
            elif option.predicted_ms < least.get(name, float("inf")):
                result[name], least[name] = option.strategy.name, option.predicted_ms
    return result


class Pick(Value):
    """One loop and the strategy it is given."""

    loop: str
    strategy: str


class Recipe(Value):
    """What the coder needs to write an idea down.

    `changed` names the loop that the idea is about, the first of those that are alike, "" when it
    combines several; `variant` counts how often the same picks were proposed before with other
    settings. `roofline_ms` is the time of the whole task by the roofline alone, before any
    correction.
    """

    picks: tuple[Pick, ...]
    changed: str = ""
    variant: int = 0
    roofline_ms: float = 0.0

    @classmethod
    def of(cls, choices: Mapping[str, str], roofline_ms: float, changed: str = "") -> "Recipe":
        """A recipe from a mapping of loop to strategy."""
        picks = tuple(Pick(loop=loop, strategy=name) for loop, name in sorted(choices.items()))
        return cls(picks=picks, changed=changed, roofline_ms=roofline_ms)

    @classmethod
    def from_idea(cls, idea: Idea) -> "Recipe | None":
        """What an idea remembers, whoever chose it; None for one without a recipe."""
        return cls.model_validate_json(idea.recipe) if idea.recipe else None

    @property
    def choices(self) -> dict[str, str]:
        """Loop to strategy."""
        return {pick.loop: pick.strategy for pick in self.picks}

    @property
    def about(self) -> tuple[str, ...]:
        """The picks that set this idea apart, as `loop=strategy`."""
        changed = [pick for pick in self.picks if pick.loop == self.changed]
        return tuple(f"{pick.loop}={pick.strategy}" for pick in changed or self.picks)


class LibraryDraft(Value):
    """Source of a whole candidate before settings are chosen; `strategies` are its attributes."""

    kernel: str
    plan: str
    strategies: tuple[str, ...]


class Repertoire(Protocol):
    """Everything the playbook can do for one task on one device."""

    @property
    def language(self) -> LanguageName:
        """What its drafts are written in."""
        ...

    @property
    def fixed_ms(self) -> float:
        """Predicted time of what stays with the library, whatever is chosen."""
        ...

    def options(self) -> tuple[Option, ...]:
        """Every option, dominant loops first, the most promising strategy of a loop first."""
        ...

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        """Write a candidate down; ValueError says why the choices do not fit."""
        ...


@collector_paused()
def repertoire_for(
    task: Task, hardware: Hardware, emitter: Emitter | None = None, *, prepares: bool = True
) -> "PlaybookRepertoire":
    """What the playbook can do for a task, in the device's own language unless another is given.

    What kernels make of weights alone is prepared where the plan `prepares`; kernels for several
    sizes share a plan, and make it in every call.
    """
    writes = RememberingEmitter(emitter or emitter_for(hardware), hardware)

    def is_ours(program: Program) -> bool:
        if not keeps_up(program, writes, hardware) or lacks_kernels(program, writes, hardware):
            return False
        return bool(program.loops) or any(writes.strategies(n, hardware) for n in program.nodes)

    more = [one for one in writes.graph_rewrites if one.is_for(hardware.architecture)]

    def takes(loop: Loop) -> bool:
        return bool(writes.strategies(loop, hardware))

    found = forms(task, more, kinds=kinds_of(writes, hardware), is_ours=is_ours, takes=takes)
    if prepares and not task.dimensions:
        found = tuple(
            replace(one, program=with_prepared_weights(one.program, hardware)) for one in found
        )
    return PlaybookRepertoire(found, writes, hardware)


class PlaybookRepertoire:
    """The forms of a task, the strategies that fit their loops, and how to write them down."""

    def __init__(
        self, forms: tuple[Form, ...], emitter: RememberingEmitter, hardware: Hardware
    ) -> None:
        self._forms = {form.name: form for form in forms}
        self._emitter = emitter
        self._hardware = hardware
        self._known: dict[tuple[str, str], tuple[Strategy, ...]] = {}
        self._nodes: dict[str, tuple[ProgramNode, ...]] = {}

    @property
    def language(self) -> LanguageName:
        """The emitter's."""
        return self._emitter.language

    @cached_property
    def fixed_ms(self) -> float:
        """Predicted time of the library calls, where there is one form; else options say it."""
        (first, *others) = self._forms.values()
        return 0.0 if others else self._library_ms(first)

    @cached_property
    @collector_paused()
    def _options(self) -> dict[str, tuple[Option, ...]]:
        """Options by the first of loops that are alike, those with the longest best time first.

        Of each they come in the emitter's order.
        """
        found: dict[str, tuple[Option, ...]] = {}
        for form in self._forms.values():
            known = {nodes[0].name: self._of(nodes, form) for nodes in self._alike(form)}
            best = {name: min(option.predicted_ms for option in of) for name, of in known.items()}
            order = sorted(known, key=lambda name: (-best[name], name))
            found |= {name: known[name] for name in order}
        return found | self._of_forms(found)

    def _of_forms(self, loops: Mapping[str, tuple[Option, ...]]) -> dict[str, tuple[Option, ...]]:
        """The forms as options of one more loop, the one predicted fastest first."""
        if len(self._forms) == 1:
            return {}
        totals = {form: self._library_ms(self._forms[form]) for form in self._forms}
        for of in loops.values():
            totals[of[0].form] += min(option.predicted_ms for option in of)
        order = sorted(totals, key=lambda name: totals[name])
        best = self._forms[order[0]]
        made = (
            Option(
                loop=FORM,
                family="whole task",
                strategy=form.idea,
                predicted_ms=self._library_ms(form),
                unlike_ms=self._library_ms(form, unlike=best),
            )
            for form in (self._forms[name] for name in order)
        )
        return {FORM: tuple(made)}

    def options(self) -> tuple[Option, ...]:
        """Every option of every loop."""
        return self._every

    @cached_property
    def _every(self) -> tuple[Option, ...]:
        return tuple(option for of in self._options.values() for option in of)

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        """Assemble a form under these choices, in which loops that are alike may differ.

        A loop left out takes what the first of those alike is given, or the first strategy.
        """
        form = self._form(choices)
        ours = {node.name for node in self._ours(form)}
        chosen: dict[str, Strategy] = {}
        for first, options in self._options.items():
            usual = choices.get(first, options[0].strategy.name)
            for loop in options[0].loops if first in ours else ():
                chosen[loop] = _named(options, loop, choices.get(loop, usual))
        assembled = assemble(form.program, self._emitter, chosen, self._hardware)
        named = (f"{FORM}={form.name}",) if len(self._forms) > 1 else ()
        return LibraryDraft(
            kernel=assembled.kernel,
            plan=assembled.plan,
            strategies=(*_attributes(chosen), *named),
        )

    def _form(self, choices: Mapping[str, str]) -> Form:
        """The form chosen; else the one predicted fastest."""
        options = self._options.get(FORM)
        first = options[0].strategy.name if options else next(iter(self._forms))
        name = choices.get(FORM, first)
        if name not in self._forms:
            raise ValueError(f"the task has no form {name!r}")
        return self._forms[name]

    def _library_ms(self, form: Form, unlike: Form | None = None) -> float:
        """Time of the library's calls, without those of another form that are the same."""
        left = Counter(map(_what, self._lines(unlike) if unlike else ()))
        total = 0.0
        for line in self._lines(form):
            if left[_what(line)] > 0:
                left[_what(line)] -= 1
            else:
                total += line_ms(line, self._hardware)
        return total

    def _ours(self, form: Form) -> tuple[ProgramNode, ...]:
        """The nodes that a kernel of ours may do: every loop, and the calls that a family takes."""
        if form.name not in self._nodes:
            self._nodes[form.name] = tuple(
                n for n in form.program.nodes if isinstance(n, Loop) or self._ways(n, form)
            )
        return self._nodes[form.name]

    def _lines(self, form: Form) -> list[PlanLine]:
        """What stays with the library whatever is chosen."""
        taken = {node.line for node in self._ours(form) if isinstance(node, LibraryCall)}
        lines = [step for step in form.program.steps if isinstance(step, PlanLine)]
        return [line for line in lines if line not in taken]

    def _ways(self, node: ProgramNode, form: Form) -> tuple[Strategy, ...]:
        """The strategies for a node; kernels of a call come before the call itself."""
        key = form.name, node.name
        if key not in self._known:
            found = self._emitter.strategies(node, self._hardware)
            is_call = isinstance(node, LibraryCall) and node.line.scores is None
            others = (LIBRARY,) if found and is_call else ()
            self._known[key] = (*found, *others)
        return self._known[key]

    def _alike(self, form: Form) -> list[tuple[ProgramNode, ...]]:
        """Its nodes, those together that are alike and have the same strategies.

        What is prepared takes no time of a call, and nothing is gained by another way to do it.
        """
        found: dict[tuple[int, tuple[Strategy, ...]], list[ProgramNode]] = {}
        ours = self._ours(form)
        prepared = {loop.name for loop in form.program.prepared}
        in_calls = [node for node in ours if node.name not in prepared]
        for node in in_calls or ours:
            found.setdefault((self._emitter.kind(node), self._ways(node, form)), []).append(node)
        return [tuple(nodes) for nodes in found.values()]

    def _of(self, nodes: tuple[ProgramNode, ...], form: Form) -> tuple[Option, ...]:
        first, *others = nodes
        return tuple(
            Option(
                loop=first.name,
                others=tuple(node.name for node in others),
                family=first.family,
                strategy=strategy,
                predicted_ms=len(nodes) * self._predicted_ms(first, strategy),
                form=form.name if len(self._forms) > 1 else "",
            )
            for strategy in self._ways(first, form)
        )

    def _predicted_ms(self, node: ProgramNode, strategy: Strategy) -> float:
        if isinstance(node, LibraryCall) and strategy is LIBRARY:
            return line_ms(node.line, self._hardware)
        return self._emitter.predicted_ms(node, strategy, self._hardware)


def _named(options: Iterable[Option], loop: str, strategy: str) -> Strategy:
    for option in options:
        if option.strategy.name == strategy:
            return option.strategy
    raise ValueError(f"loop {loop} has no strategy {strategy!r}")


def _what(line: PlanLine) -> tuple[str, int, int]:
    """What makes calls of two forms the same, whatever their tensors are called."""
    names = "|".join(map(re.escape, (*line.makes, *line.uses)))
    words = re.sub(rf"\b({names})\b", "_", line.text) if names else line.text
    return words, line.cost_bytes, line.cost_flops


def _attributes(chosen: Mapping[str, Strategy]) -> tuple[str, ...]:
    """The choices, and the labels of the dominant loop, which stands first."""
    if not chosen:
        return ()
    first = next(iter(chosen.values()))
    labels = {"memory": first.memory, "compute": first.compute, "parallel": first.parallel}
    named = {loop: strategy.name for loop, strategy in sorted(chosen.items())}
    rounded = any(strategy.rounds_factors for strategy in chosen.values())
    found = tuple(f"{name}={value}" for name, value in (named | labels).items())
    return (*found, ROUNDED_FACTORS) if rounded else found
