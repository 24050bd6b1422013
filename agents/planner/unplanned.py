"""Planners without ideas of their own, for ablations: what planning is worth.

They cost what they replace saves: nothing is asked, drawn or measured more than a search with all
its parts would.
"""

import random

from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.shared.facts import speaks_of
from kernelwright.tools.codegen.library.kernel_library import Option, Recipe, Repertoire
from kernelwright.tools.types import Idea

WHY = "drawn by chance, as planning is switched off"
DRAWS = 64


def unplanned(planner: object, seed: int) -> Planner:
    """Who plans without ideas: options by chance, or a free hand in a model's place."""
    if isinstance(planner, PlaybookPlanner):
        return DrawingPlanner(planner.repertoire, seed)
    return FreeHand()


class DrawingPlanner:
    """Draws options of a repertoire by chance, predicts nothing and learns nothing.

    Args:
        repertoire: What there is to draw.
        seed: The same seed draws the same options.
    """

    def __init__(self, repertoire: Repertoire, seed: int) -> None:
        self._repertoire = repertoire
        self._seed = seed

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """A strategy by chance for all loops that are alike, new ones while there are any."""
        dice = random.Random(f"{self._seed}:drawn:{planner_input.round}")
        options = self._allowed(planner_input)
        tried = [recipe for idea in planner_input.tried if (recipe := Recipe.from_idea(idea))]
        ideas: list[Idea] = []
        while options and len(ideas) < planner_input.wanted:
            recipe = _drawn(options, tried, dice)
            tried.append(recipe)
            ideas.append(_idea(recipe, options, len(ideas) + 1, planner_input.round))
        return Proposal(ideas=tuple(ideas), reasoning=f"{len(ideas)} ideas were {WHY}.")

    def _allowed(self, planner_input: PlannerInput) -> dict[str, list[Option]]:
        """Options by loop without what the person ruled out; none where a loop has none left."""
        allowed: dict[str, list[Option]] = {}
        for option in self._repertoire.options():
            of = allowed.setdefault(option.loop, [])
            if not any(speaks_of(ban, option.texts) for ban in planner_input.steering.bans):
                of.append(option)
        return allowed if all(allowed.values()) else {}


class FreeHand:
    """Asks for the fastest implementation that the coder can think of, and says nothing else."""

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """As many free hands as there would have been ideas."""
        ideas = tuple(
            Idea(
                id=f"r{planner_input.round}i{number}",
                title="The fastest implementation you can write",
                mechanism="whatever you find best",
                reason="planning is switched off",
                category="free",
                metric="ms",
                round=planner_input.round,
                origin="model",
            )
            for number in range(1, planner_input.wanted + 1)
        )
        return Proposal(
            ideas=ideas, reasoning="Planning is switched off: the coder has a free hand."
        )


def _drawn(options: dict[str, list[Option]], tried: list[Recipe], dice: random.Random) -> Recipe:
    """A recipe by chance; when all seem tried, one of them again with other settings."""
    known = [recipe.picks for recipe in tried]
    for _ in range(DRAWS):
        drawn = [dice.choice(of) for of in options.values()]
        chosen = {loop: name for option in drawn for loop, name in option.change.items()}
        recipe = Recipe.of(chosen, 0.0, changed=next(iter(chosen)))
        if recipe.picks not in known:
            return recipe
    return recipe.model_copy(update={"variant": known.count(recipe.picks)})


def _idea(recipe: Recipe, options: dict[str, list[Option]], number: int, round: int) -> Idea:
    named = recipe.choices
    chosen = [
        o.strategy for loop, of in options.items() for o in of if named[loop] == o.strategy.name
    ]
    title = ", ".join(dict.fromkeys(strategy.title for strategy in chosen))
    return Idea(
        id=f"r{round}i{number}",
        title=f"{title}, other settings ({recipe.variant + 1})" if recipe.variant else title,
        mechanism="; ".join(dict.fromkeys(strategy.mechanism for strategy in chosen)),
        reason=WHY,
        category=chosen[0].category,
        metric=chosen[0].metric,
        round=round,
        recipe=recipe.model_dump_json(),
    )
