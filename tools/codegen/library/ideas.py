"""Ideas of the playbook: which strategy for which loop, and what the model of the machine says.

A repertoire knows every option of a task; a recipe is what an idea remembers so that the coder can
write it down later. Which idea comes when is the planner's business.

A task may have several forms (as written, rewritten by algebra, in another layout). Which one is
an option like any other, of a loop called `form`; loops belong to one form each.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.types import Idea, LanguageName, Value

FORM = "form"


class Option(Value):
    """One strategy that fits one loop; `predicted_ms` is the loop's time, not the task's.

    `form` is the form that the loop belongs to, "" where a task has only one. An option of the
    loop `form` stands for a whole form; its time is that of what the form leaves to the library,
    and `unlike_ms` the part of it that the form predicted fastest does not have.
    """

    loop: str
    family: str
    strategy: Strategy
    predicted_ms: float
    form: str = ""
    unlike_ms: float = 0.0

    @property
    def texts(self) -> tuple[str, ...]:
        """The words by which a person or a critic may speak of it."""
        chosen = self.strategy
        labels = (f"memory={chosen.memory}", f"compute={chosen.compute}")
        return (
            *labels,
            f"parallel={chosen.parallel}",
            f"{self.loop}={chosen.name}",
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
    chosen = {loop: option.strategy.name for loop, option in best.items()}
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
        name = option.loop
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

    `changed` names the loop that the idea is about, "" when it combines several; `variant` counts
    how often the same picks were proposed before with other settings. `roofline_ms` is the time
    of the whole task by the roofline alone, before any correction.
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


class Draft(Value):
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

    def draft(self, choices: Mapping[str, str]) -> Draft:
        """Write a candidate down; ValueError says why the choices do not fit."""
        ...
