"""What predictions are worth: the roofline's times, corrected by what such ideas really brought.

Every idea that ran gives one ratio, measured over predicted. A strategy is believed by its own
ratios as far as there are any, then by its category's, then by everybody's; each level counts as
one more observation of the level below. Times in milliseconds.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log

from agents.playbook.ideas import Recipe
from tools.nouns import Idea, LedgerEntry


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
