"""Hands a search over a large model the candidates that its regions were put together to.

They are the ideas of the first round, each with its candidate; the search judges them as it judges
any other. Where none is correct, the other planner goes on with the model as a whole.
"""

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.tools.types import Candidate, Idea, Value


class Composition(Value):
    """One way to put regions together: the idea in words, and the candidate."""

    idea: Idea
    candidate: Candidate


class Compositions(Value):
    """All that a search over a model was given; empty where no region became faster."""

    items: tuple[Composition, ...] = ()


class ComposedPlanner:
    """Proposes the compositions in the first round, and nothing after that while one is correct."""

    def __init__(self, planner: Planner, given: Compositions) -> None:
        self._planner = planner
        self._given = given

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """The compositions, then the other planner's ideas where none of them held."""
        if planner_input.round == 1:
            ideas = tuple(item.idea for item in self._given.items)
            reasoning = "Each region was searched by itself; these put together what was faster."
            return Proposal(ideas=ideas, reasoning=reasoning)
        if planner_input.best is not None:
            return Proposal(ideas=(), reasoning="Its regions were searched one by one.")
        return await self._planner.plan(planner_input)


class ComposedCoder:
    """Hands out the candidate of a composition; another coder writes everything else."""

    def __init__(self, coder: Coder, given: Compositions) -> None:
        self._coder = coder
        self._given = {item.idea.id: item.candidate for item in given.items}

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """The composition's candidate where it is asked for."""
        known = self._given.get(request.idea.id)
        if known is None:
            return await self._coder.write(request)
        return CoderAnswer(candidates=(known.model_copy(update={"idea": request.idea.id}),))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """Nothing better is known of a composition; the other coder's otherwise."""
        if request.idea.id in self._given:
            return CoderAnswer(candidates=())
        return await self._coder.repair(request, failure)
