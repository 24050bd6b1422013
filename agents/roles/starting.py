"""Planner and coder that begin with the person's own kernel (`agents.shared.start`).

It is an idea of the person's in the first round, so that the ledger says what it brought and later
ideas may start from it.
"""

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.shared.start import PERSON, Start
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.languages import new_candidate


class StartingPlanner:
    """Puts the person's idea before another planner's ideas of the first round."""

    def __init__(self, planner: Planner, start: Start) -> None:
        self._planner = planner
        self._start = start

    async def plan(self, situation: PlannerInput) -> Proposal:
        """The other planner's proposal, with one idea more in the first round."""
        proposal = await self._planner.plan(situation)
        if situation.round > 1:
            return proposal
        return proposal.model_copy(update={"ideas": (self._start.idea, *proposal.ideas)})


class StartingCoder:
    """Hands out the person's candidate for the person's idea; another coder does all the rest."""

    def __init__(self, coder: Coder, start: Start) -> None:
        self._coder = coder
        self._start = start

    async def write(self, order: CoderRequest) -> CoderAnswer:
        """The person's candidate where it is complete and asked for."""
        if order.idea.origin != PERSON or not self._start.plan:
            return await self._coder.write(order)
        start = self._start
        try:
            candidate = new_candidate(
                start.language, start.kernel, start.plan, idea=order.idea.id, origin="person"
            )
        except ContractError as error:
            return CoderAnswer(candidates=(), notes=(f"{start.name}: {error}",))
        return CoderAnswer(candidates=(candidate,))

    async def repair(self, order: CoderRequest, failure: Failure) -> CoderAnswer:
        """The other coder's."""
        return await self._coder.repair(order, failure)
