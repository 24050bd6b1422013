"""What a planner may try, in the order of what it is expected to take.

What roles, persons and counters say moves a thought; thoughts of one round differ.
"""

from collections.abc import Iterator

from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.shared.candidate_priority import (
    Prospect,
    Seen,
    Suspect,
    in_turn,
    like,
)
from kernelwright.agents.shared.facts import loop_of, speaks_of
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    Recipe,
)
from kernelwright.tools.types import Symptom, Value

# How much a role's word moves the order; a factor on expected time, so below 1 is earlier.
PREFERRED, AVOIDED = 0.8, 1.3
PINNED, HINTED = 0.3, 0.75
POINTED_AT = 0.95
# Of what a symptom is worth by counters, and no more than this share of the time is believed.
HALF, MOST_WORTH = 0.5, 0.6
# Ideas of one round should differ: the same behaviour a second time has to be this much better.
SAME_CELL = 1.25


class Thought(Value):
    """An idea in the making: `weight` is what orders it, `why` what moved it there.

    `hopeful_ms` is its time with all that differs from the best way known at its best; `rounded`
    says that a product of it rounds its factors.
    """

    option: Option
    recipe: Recipe
    expected_ms: float
    hopeful_ms: float
    weight: float
    rounded: bool = False
    why: tuple[str, ...] = ()
    parent: str | None = None

    @property
    def prospect(self) -> Prospect:
        """What it promises, weighed."""
        share = self.hopeful_ms / self.expected_ms if self.expected_ms > 0 else 1.0
        return Prospect(
            form=self.recipe.choices.get(FORM, ""),
            rounded=self.rounded,
            expected_ms=self.weight,
            hopeful_ms=self.weight * share,
        )


def weigh(thought: Thought, planner_input: PlannerInput) -> Thought | None:
    """Let the critic, the profiler and the person move an idea; None when it is banned."""
    texts = thought.option.texts
    if any(speaks_of(ban, texts) for ban in planner_input.steering.bans):
        return None
    weight, why = thought.expected_ms, list(thought.why)
    for factor, favoured, words in _preferences(planner_input):
        spoken = [name for name in favoured if speaks_of(name, texts)]
        if spoken:
            weight *= factor ** len(spoken)
            why.append(f"{words} {', '.join(spoken)}")
    if (cure := _cured(thought, planner_input)) is not None:
        weight *= 1.0 - HALF * min(cure.worth or 0.0, MOST_WORTH)
        why.append(f"counters say that '{cure.name}' costs {cure.worth:.0%} of the time")
    return thought.model_copy(update={"weight": weight, "why": tuple(why)})


def _preferences(planner_input: PlannerInput) -> Iterator[tuple[float, tuple[str, ...], str]]:
    yield PINNED, planner_input.steering.pins, "the person pinned"
    yield HINTED, planner_input.steering.hints, "the person hinted at"
    if planner_input.analysis is not None:
        trust = planner_input.analysis.advice_trust
        yield PREFERRED**trust, planner_input.analysis.prefer, "the critic prefers"
        yield AVOIDED**trust, planner_input.analysis.avoid, "the critic advises against"
    for symptom in planner_input.symptoms:
        if symptom.worth is None:
            yield POINTED_AT, symptom.points_to, f"the symptom '{symptom.name}' points to"


def _cured(thought: Thought, planner_input: PlannerInput) -> Symptom | None:
    """Of what counters found in the best candidate, what this idea cures and is worth most.

    Other settings of the same way cure nothing by themselves; the tuner turns those.
    """
    if thought.recipe.variant:
        return None
    loops, category = thought.option.loops, thought.option.strategy.category
    found = [
        item
        for item in planner_input.symptoms
        if item.worth is not None
        and (not item.kernel or loop_of(item.kernel) in loops)
        and category in item.points_to
    ]
    return max(found, key=lambda item: item.worth or 0.0, default=None)


def diverse(thoughts: list[Thought], wanted: int, found: tuple[Seen, ...]) -> list[Thought]:
    """The lightest thought, then the most hopeful ones, in the order to try them.

    A behaviour that is already among them counts as heavier.
    """
    chosen: list[Thought] = []
    left = sorted(thoughts, key=lambda thought: thought.weight)
    while left and len(chosen) < wanted:
        cells = [thought.option.cell for thought in chosen]

        def order(thought: Thought, cells: list[tuple[str, str, str]] = cells) -> float:
            promised = thought.prospect.hopeful_ms if cells else thought.weight
            return promised * SAME_CELL ** cells.count(thought.option.cell)

        next_one = min(left, key=order)
        chosen.append(next_one)
        left.remove(next_one)
    _keep_a_reserve(chosen, left, {like(item) for item in found})
    turn = in_turn([thought.prospect for thought in chosen], found)
    return [chosen[at] for at in turn]


def _keep_a_reserve(chosen: list[Thought], left: list[Thought], tried: set[Suspect]) -> None:
    """Put what nobody tried in the last place, where all places went to one form.

    So there is something else to try in the same round when that form's result is refused. Of a
    form whose factors are all rounded, its exact products are something else.
    """
    known = {like(thought.prospect) for thought in chosen} | tried
    untried = next((thought for thought in left if like(thought.prospect) not in known), None)
    if untried is not None and len(known) == 1 and len(chosen) > 2:
        chosen[-1] = untried
