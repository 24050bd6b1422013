"""Hands a search over a large model the candidates that its regions were put together to.

They are the ideas of one round, each with its candidate; the search judges them as it judges any
other. Where that is the first round, the other planner's first idea of the model as one stands
beside them, so that what it brings is known even where the time ends with it; in what is left it
goes on.
"""

from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.tools.types import Candidate, Idea, Value


class Composition(Value):
    """One way to put regions together: the idea in words, and the candidate."""

    idea: Idea
    candidate: Candidate


class Compositions(Value):
    """All that a search over a model was given; empty where no region became faster.

    `round` is the one whose ideas they are, or before which it was seen that there are none: the
    first, or a later one where the model was searched as one before.
    `whole` says that the model may be searched as one besides, and `beside` from the first round
    on. One that is traced in parts is not, and runs from before this was kept were not while a
    composition was correct, or not before the second round.
    """

    items: tuple[Composition, ...] = ()
    round: int = 1
    whole: bool = False
    beside: bool = False

    @property
    def candidates(self) -> dict[str, Candidate]:
        """By their ideas."""
        return {item.idea.id: item.candidate for item in self.items}


class ComposedPlanner:
    """Proposes the compositions in their round, and the model as one in the others."""

    def __init__(self, planner: Planner, given: Compositions) -> None:
        self._planner = planner
        self._given = given

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """The compositions, then the other planner's ideas where none of them held."""
        if planner_input.round == self._given.round:
            ideas = tuple(item.idea for item in self._given.items)
            reasoning = "Each region was searched by itself; these put together what was faster."
            if not (self._given.whole and self._given.beside):
                return Proposal(ideas=ideas, reasoning=reasoning)
            asked = {"tried": (*planner_input.tried, *ideas), "wanted": 1}
            other = await self._planner.plan(planner_input.model_copy(update=asked))
            number = f"r{planner_input.round}i{len(ideas) + 1}"
            one = tuple(idea.model_copy(update={"id": number}) for idea in other.ideas[:1])
            return other.model_copy(update={"ideas": (*ideas, *one), "reasoning": reasoning})
        later = planner_input.round > self._given.round
        if later and planner_input.best is not None and not self._given.whole:
            return Proposal(ideas=(), reasoning="Its regions were searched one by one.")
        return await self._planner.plan(planner_input)
