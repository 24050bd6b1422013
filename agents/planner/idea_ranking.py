"""Which ideas to try first: expected times corrected by the ledger, weighed by everybody's wishes.

Every idea that ran gives one ratio, measured over predicted. A strategy is believed by its own
ratios as far as there are any, then by its category's, then by everybody's; each level counts as
one more observation of the level below. The critic, the profiler and the person move an idea's
expected time by factors; a round's ideas should differ in behaviour, and leave another form of the
task to fall back on. Times in milliseconds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log

from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.shared.candidate_priority import Prospect, Seen, in_turn
from kernelwright.agents.shared.steering import speaks_of
from kernelwright.tools.codegen.library.ideas import FORM, Option, Recipe
from kernelwright.tools.types import Idea, LedgerEntry, Value

# How much a role's word moves the order; a factor on expected time, so below 1 is earlier.
PREFERRED, AVOIDED = 0.8, 1.3
PINNED, HINTED = 0.3, 0.75
POINTED_AT = 0.95
# Ideas of one round should differ: the same behaviour a second time has to be this much better.
SAME_CELL = 1.25


class Thought(Value):
    """An idea in the making: `weight` is what orders it, `why` what moved it there.

    `hopeful_ms` is its time with all that differs from the best way known at its best.
    """

    option: Option
    recipe: Recipe
    expected_ms: float
    hopeful_ms: float
    weight: float
    why: tuple[str, ...] = ()
    parent: str | None = None

    @property
    def prospect(self) -> Prospect:
        """What it promises, weighed."""
        share = self.hopeful_ms / self.expected_ms if self.expected_ms > 0 else 1.0
        form = self.recipe.choices.get(FORM, "")
        return Prospect(form=form, expected_ms=self.weight, hopeful_ms=self.weight * share)


def weigh(thought: Thought, situation: PlannerInput) -> Thought | None:
    """Let the critic, the profiler and the person move an idea; None when it is banned."""
    texts = thought.option.texts
    if any(speaks_of(ban, texts) for ban in situation.steering.bans):
        return None
    weight, why = thought.expected_ms, list(thought.why)
    for factor, wishes, words in _clients(situation):
        spoken = [wish for wish in wishes if speaks_of(wish, texts)]
        if spoken:
            weight *= factor ** len(spoken)
            why.append(f"{words} {', '.join(spoken)}")
    return thought.model_copy(update={"weight": weight, "why": tuple(why)})


def _clients(situation: PlannerInput) -> Iterator[tuple[float, tuple[str, ...], str]]:
    yield PINNED, situation.steering.pins, "the person pinned"
    yield HINTED, situation.steering.hints, "the person hinted at"
    if situation.analysis is not None:
        yield PREFERRED, situation.analysis.prefer, "the critic prefers"
        yield AVOIDED, situation.analysis.avoid, "the critic advises against"
    for symptom in situation.symptoms:
        yield POINTED_AT, symptom.points_to, f"the symptom '{symptom.name}' points to"


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
    _keep_a_reserve(chosen, left, {item.form for item in found})
    turn = in_turn([thought.prospect for thought in chosen], found)
    return [chosen[at] for at in turn]


def _keep_a_reserve(chosen: list[Thought], left: list[Thought], tried: set[str]) -> None:
    """Put a form that nobody tried in the last place, where all places went to one form.

    So there is something else to try in the same round when that form's result is refused.
    """
    forms = {thought.prospect.form for thought in chosen} | tried
    untried = next((thought for thought in left if thought.prospect.form not in forms), None)
    if untried is not None and len(forms) == 1 and len(chosen) > 2:
        chosen[-1] = untried


class Forecast:
    """Correction factors learnt from a ledger.

    Args:
        ledger: What ideas really did.
        ideas: The ideas themselves; those of another mind carry no recipe and teach only through
            the times that the playbook predicted, so they are passed over.
    """

    def __init__(self, ledger: Sequence[LedgerEntry], ideas: Sequence[Idea]) -> None:
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

    def observations(self, category: str) -> int:
        """How many measured ideas of a category stand behind its factor."""
        return len(self._by_category.get(category, []))


def _toward(ratios: list[float], prior: float) -> float:
    """The mean of the ratios, the prior counting as one more; the prior alone without any."""
    return (sum(ratios) + prior) / (len(ratios) + 1) if ratios else prior
