"""The planner by rules: which ideas to try next, why these, and why in this order.

It chooses among the options of the kernel library by expected time: the roofline's prediction,
corrected by the ledger, weighed by the critic's last analysis and by what the person asked for.
Every idea that ran gives one ratio, measured over predicted. A strategy is believed by its own
ratios as far as there are any, then by its category's, then by everybody's; each level counts as
one more observation of the level below. The critic, the profiler and the person move an idea's
expected time by factors; a round's ideas should differ in behaviour, and leave another form of the
task to fall back on. Times in milliseconds.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp, log

from kernelwright.agents.planner.planner import PlannerInput, Proposal
from kernelwright.agents.planner.thoughts import Thought, diverse, weigh
from kernelwright.agents.shared.candidate_priority import (
    LIBRARY_DOUBT,
    LOOP_DOUBT,
    Seen,
    Suspect,
    doubted,
    seen,
)
from kernelwright.agents.shared.facts import choices
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    Recipe,
    Repertoire,
    fastest,
    in_form,
)
from kernelwright.tools.types import Idea, LedgerEntry


class Forecast:
    """Correction factors learnt from a ledger.

    Args:
        ledger: What ideas really did.
        ideas: The ideas themselves; those of a model carry no recipe and teach only through
            the times that the playbook predicted, so they are passed over.
        loop_ms: What single loops took by a profiler of the device, by `loop=strategy`.
    """

    def __init__(
        self,
        ledger: Sequence[LedgerEntry],
        ideas: Sequence[Idea],
        loop_ms: Iterable[tuple[str, float]] = (),
    ) -> None:
        self._loop_ms = dict(loop_ms)
        self._all: list[float] = []
        self._by_category: dict[str, list[float]] = defaultdict(list)
        self._by_strategy: dict[str, list[float]] = defaultdict(list)
        recipes = {idea.id: Recipe.from_idea(idea) for idea in ideas}
        for entry in ledger:
            recipe = recipes.get(entry.idea)
            if recipe is not None and entry.measured_ms is not None:
                self._learn(recipe, entry.category, entry.measured_ms)

    def _learn(self, recipe: Recipe, category: str, measured_ms: float) -> None:
        if recipe.roofline_ms <= 0:
            return
        ratio = log(measured_ms / recipe.roofline_ms)
        self._all.append(ratio)
        self._by_category[category].append(ratio)
        for name in recipe.about:
            self._by_strategy[name].append(ratio)

    def factor(self, category: str, strategy: str) -> float:
        """By how much to multiply the roofline's time; 1 when nothing is known.

        Args:
            category: The kind of idea.
            strategy: As `loop=strategy`.
        """
        everybody = _toward(self._all, 0.0)
        kind = _toward(self._by_category.get(category, []), everybody)
        return exp(_toward(self._by_strategy.get(strategy, []), kind))

    def option_ms(self, option: Option) -> float:
        """What a loop takes done that way: as its kernels were measured, else as predicted."""
        name = f"{option.loop}={option.strategy.name}"
        if name in self._loop_ms:
            return self._loop_ms[name]
        return option.predicted_ms * self.factor(option.strategy.category, name)

    def observations(self, category: str) -> int:
        """How many measured ideas of a category stand behind its factor."""
        return len(self._by_category.get(category, []))


def _toward(ratios: list[float], prior: float) -> float:
    """The mean of the ratios, the prior counting as one more; the prior alone without any."""
    return (sum(ratios) + prior) / (len(ratios) + 1) if ratios else prior


# A change of this share of the time is none.
NOTHING = 0.002
_NO_KERNELS = "PyTorch's library does all of it, and rules have no kernels for that"


class PlaybookPlanner:
    """Plans from a repertoire by corrected predictions."""

    def __init__(self, repertoire: Repertoire) -> None:
        self._repertoire = repertoire
        self._indexed: tuple[Option, ...] = ()
        self._places: dict[tuple[str, str], list[int]] = {}

    @property
    def repertoire(self) -> Repertoire:
        """What it chooses from."""
        return self._repertoire

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """Untried options first; then combinations and refinements of what was fast."""
        if not self._repertoire.options():
            return Proposal(ideas=(), reasoning=f"{_NO_KERNELS}.", none_ever=_NO_KERNELS)
        forecast = Forecast(planner_input.ledger, planner_input.tried, planner_input.loop_ms)
        found = _seen(planner_input)
        thoughts = [
            weighed
            for thought in self._thoughts(planner_input, forecast, found)
            if (weighed := weigh(thought, planner_input)) is not None
        ]
        chosen = diverse(thoughts, planner_input.wanted, found)
        ideas = tuple(_idea(item, n, planner_input) for n, item in enumerate(chosen, start=1))
        return Proposal(
            ideas=ideas, reasoning=_reasoning(chosen, thoughts, planner_input, forecast)
        )

    def _thoughts(
        self, planner_input: PlannerInput, forecast: Forecast, found: tuple[Seen, ...]
    ) -> Iterator[Thought]:
        """Every idea not tried yet, without those of which nothing can be hoped."""
        tried, base = _tried(planner_input), self._base(planner_input, found)
        base_ms = self._expected_ms(base, forecast)
        for option, chosen in self._changes(planner_input, base):
            recipe = Recipe.of(chosen, self._roofline_ms(chosen), changed=option.loop)
            expected_ms = self._expected_ms(chosen, forecast)
            hopeless = expected_ms - self._doubt_ms(chosen, base) > (1 - NOTHING) * base_ms
            if hopeless and chosen != base and expected_ms <= (1 + NOTHING) * base_ms:
                continue  # a loop that takes next to no time, done in another way
            if frozenset(chosen.items()) not in tried:
                tried.add(frozenset(chosen.items()))
                yield Thought(
                    option=option,
                    recipe=recipe,
                    expected_ms=expected_ms,
                    hopeful_ms=expected_ms - self._doubt_ms(chosen, base),
                    weight=1.0,
                    rounded=self._is_rounded(chosen),
                    parent=planner_input.best.candidate.id if planner_input.best else None,
                )
        yield from self._refinements(planner_input)

    def _changes(
        self, planner_input: PlannerInput, base: dict[str, str]
    ) -> Iterator[tuple[Option, dict[str, str]]]:
        """Loops that are alike done differently from the best known way, and all best changes."""
        options = self._repertoire.options()
        together = in_form(options, base | _best_changes(planner_input, options))
        for option in options:
            name = option.strategy.name
            if any(together.get(loop) == name != base.get(loop) for loop in option.loops):
                yield option, together
                break
        for option in options:
            # Loops of another form come up when that form has proved itself.
            if option.loop in base:
                yield option, in_form(options, base | option.change)

    def _base(self, planner_input: PlannerInput, found: tuple[Seen, ...]) -> dict[str, str]:
        """The best candidate's strategies; where it says none, the one predicted fastest.

        Forms in doubt are not begun with, unless all are.
        """
        options = _undoubted(self._repertoire.options(), found)
        best = choices(planner_input.best.candidate) if planner_input.best else {}
        ways = {way for option in options for way in option.change.items()}
        known = {loop: name for loop, name in best.items() if (loop, name) in ways}
        return in_form(options, fastest(options) | known)

    def _refinements(self, planner_input: PlannerInput) -> Iterator[Thought]:
        """The elites again with settings that differ from those tried."""
        by_name = {way: o for o in self._repertoire.options() for way in o.change.items()}
        recipes = {idea.id: Recipe.from_idea(idea) for idea in planner_input.tried}
        for parent in planner_input.parents:
            chosen, median_ms = choices(parent.candidate), parent.evaluation.median_ms
            if median_ms is None or not chosen or not set(chosen.items()) <= set(by_name):
                continue
            known = recipes.get(parent.candidate.idea)
            loop = known.changed if known and known.changed in chosen else next(iter(chosen))
            recipe = Recipe.of(chosen, self._roofline_ms(chosen), changed=loop)
            variants = [r.variant for r in recipes.values() if r and r.picks == recipe.picks]
            yield Thought(
                option=by_name[loop, chosen[loop]].only(
                    [one for one, name in chosen.items() if name == chosen[loop]]
                ),
                recipe=recipe.model_copy(update={"variant": max(variants, default=0) + 1}),
                expected_ms=median_ms,
                hopeful_ms=median_ms - self._doubt_ms(chosen, {FORM: chosen.get(FORM, "")}),
                weight=1.0,
                rounded=self._is_rounded(chosen),
                why=(f"{parent.candidate.id} reached {median_ms:.3g} ms and has settings left",),
                parent=parent.candidate.id,
            )

    def _taken(self, chosen: Mapping[str, str]) -> list[Option]:
        """The options that are chosen, in their order: a large model has thousands of others.

        Of one that only some of its loops were given there is that part.
        """
        options = self._repertoire.options()
        if options is not self._indexed:
            self._indexed, self._places = options, {}
            for place, option in enumerate(options):
                for way in option.change.items():
                    self._places.setdefault(way, []).append(place)
        taken: dict[int, set[str]] = {}
        for way in chosen.items():
            for place in self._places.get(way, ()):
                taken.setdefault(place, set()).add(way[0])
        return [options[place].only(taken[place]) for place in sorted(taken)]

    def _is_rounded(self, chosen: dict[str, str]) -> bool:
        return any(option.strategy.rounds_factors for option in self._taken(chosen))

    def _roofline_ms(self, chosen: dict[str, str]) -> float:
        taken = self._taken(chosen)
        return self._repertoire.fixed_ms + sum(option.predicted_ms for option in taken)

    def _expected_ms(self, chosen: dict[str, str], forecast: Forecast) -> float:
        taken = self._taken(chosen)
        return self._repertoire.fixed_ms + sum(forecast.option_ms(option) for option in taken)

    def _doubt_ms(self, chosen: dict[str, str], base: dict[str, str]) -> float:
        """By how much the roofline may be off in what differs from the way gone so far."""
        differs = self._taken(dict(chosen.items() - base.items()))
        library_ms = ours_ms = 0.0
        for option in differs:
            if option.loop == FORM:
                library_ms += option.unlike_ms
            elif option.strategy.name == LIBRARY.name:
                library_ms += option.predicted_ms
            else:
                ours_ms += option.predicted_ms
        return library_ms * (1 - 1 / LIBRARY_DOUBT) + ours_ms * (1 - 1 / LOOP_DOUBT)


def _undoubted(options: tuple[Option, ...], found: tuple[Seen, ...]) -> tuple[Option, ...]:
    """The options of forms that are not in doubt; all where every form is.

    Where factors that are rounded are in doubt, the form's exact products are left of it.
    """
    doubts = doubted(found)

    def is_rounded(option: Option) -> bool:
        rounds = option.strategy.rounds_factors
        return rounds and Suspect(form=option.form, rounded=True) in doubts

    exact = [option for option in options if not is_rounded(option)]
    kept = {option.loop for option in exact}
    out = {option.form for option in options if option.loop not in kept}
    out |= {one.form for one in doubts if not one.rounded}
    left = tuple(o for o in exact if (o.strategy.name if o.loop == FORM else o.form) not in out)
    whole = any(o.loop == FORM for o in left) or not any(o.loop == FORM for o in options)
    return left if left and whole else options


def _seen(planner_input: PlannerInput) -> tuple[Seen, ...]:
    """What became of the candidates so far, for what their forms are worth."""
    expected = {idea.id: idea.predicted_ms for idea in planner_input.tried if idea.predicted_ms}
    return tuple(seen(item, expected) for item in planner_input.standings)


def _tried(planner_input: PlannerInput) -> set[frozenset[tuple[str, str]]]:
    recipes = [Recipe.from_idea(idea) for idea in planner_input.tried]
    return {frozenset(recipe.choices.items()) for recipe in recipes if recipe is not None}


def _best_changes(planner_input: PlannerInput, options: tuple[Option, ...]) -> dict[str, str]:
    """For each loop, the strategy whose idea gained most over the best before it.

    What one of several loops that are alike gained by, all of them are given.
    """
    recipes = {idea.id: Recipe.from_idea(idea) for idea in planner_input.tried}
    found: dict[str, tuple[float, str]] = {}
    changes = {way: option.change for option in options for way in option.change.items()}
    for entry in planner_input.ledger:
        recipe = recipes.get(entry.idea)
        if recipe is None or not recipe.changed or not entry.gain or entry.gain <= 1.0:
            continue
        way = recipe.changed, recipe.choices[recipe.changed]
        for loop, strategy in changes.get(way, dict([way])).items():
            found[loop] = max(found.get(loop, (0.0, "")), (entry.gain, strategy))
    return {loop: strategy for loop, (_, strategy) in found.items()}


def _idea(thought: Thought, number: int, planner_input: PlannerInput) -> Idea:
    strategy, recipe = thought.option.strategy, thought.recipe
    title = f"{strategy.title}{_where(thought)}"
    if recipe.variant:
        title += f", other settings ({recipe.variant + 1})"
    return Idea(
        id=f"r{planner_input.round}i{number}",
        title=title,
        mechanism=strategy.mechanism,
        reason="; ".join((strategy.reason, *thought.why)),
        category=strategy.category,
        metric=strategy.metric,
        predicted_ms=thought.expected_ms,
        hopeful_ms=thought.hopeful_ms,
        risk=_risk(thought),
        round=planner_input.round,
        recipe=recipe.model_dump_json(),
        parent=thought.parent,
    )


def _where(thought: Thought) -> str:
    """In which loops an idea does something; "" where there is but one, or it is a form."""
    option = thought.option
    if option.loop == FORM or len(thought.recipe.picks) < 2:
        return ""
    if not option.others:
        return f" in {option.loop}"
    return f", in {len(option.loops)} alike loops from {option.loop} on"


def _risk(thought: Thought) -> str:
    factor = thought.option.strategy.bytes_read_factor
    if factor > 1.0:
        return f"reads its input {factor:g} times; pays only if the repeats stay in a cache"
    return ""


def _reasoning(
    chosen: list[Thought], thoughts: list[Thought], planner_input: PlannerInput, forecast: Forecast
) -> str:
    """Why these ideas and why in this order, with the numbers."""
    if not chosen:
        return "Nothing is left to try: every option was tried, or the person ruled it out."
    are = "idea is" if len(thoughts) == 1 else "ideas are"
    fit = "fits" if len(chosen) == 1 else "fit"
    lines = [
        f"{len(thoughts)} {are} open; {len(chosen)} {fit} into round {planner_input.round}. "
        f"The floor is {planner_input.floor_ms:.3g} ms{_standing(planner_input)}."
    ]
    for number, thought in enumerate(chosen, start=1):
        strategy = thought.option.strategy
        observed = forecast.observations(strategy.category)
        roofline = thought.recipe.roofline_ms
        basis = (
            f"roofline {roofline:.3g} ms, corrected by {observed} measured "
            f"{strategy.category} idea{'s' if observed != 1 else ''}"
            if observed
            else f"roofline {roofline:.3g} ms, nothing measured of its kind yet"
        )
        why = f"; {'; '.join(thought.why)}" if thought.why else ""
        lines.append(
            f"{number}. {strategy.title}{_of_loop(thought.option)}: expected "
            f"{thought.expected_ms:.3g} ms ({basis}){why}."
        )
    if planner_input.allow:
        named = ", ".join(planner_input.allow)
        lines.append(
            f"Computing in {named} is allowed, but the playbook writes no kernels in it: these "
            "compute in the task's own precision."
        )
    return "\n".join(lines)


def _of_loop(option: Option) -> str:
    """Which loop of the task, counted from 1 as people do; "" for what is no loop."""
    found = re.fullmatch(r"[A-Z]*L(\d+)", option.loop)
    first = f"loop {int(found[1]) + 1}" if found else option.loop
    if option.others:
        return f" ({len(option.loops)} alike loops from {first} on)"
    return f" ({first})" if found else ""


def _standing(planner_input: PlannerInput) -> str:
    parts = []
    if planner_input.baseline_ms is not None:
        parts.append(f"the best baseline {planner_input.baseline_ms:.3g} ms")
    if planner_input.best is not None and planner_input.best.evaluation.median_ms is not None:
        parts.append(f"the best so far {planner_input.best.evaluation.median_ms:.3g} ms")
    return f", {' and '.join(parts)}" if parts else ""
