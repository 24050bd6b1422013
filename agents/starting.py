"""A person's own kernel as the beginning of a search.

With its plan it is a candidate and is judged as it is, before anything else; without one
(a bare `.cu`) a language model is asked to wrap it. Either way it is an idea of the person's in the
first round, so that the ledger says what it brought and later ideas may start from it.
Reading the file is the command line's business.
"""

from agents.coder import Answer, Coder, Failure, Order
from agents.planner import Planner
from agents.situation import Proposal, Situation
from tools.candidates import ContractError
from tools.languages import new_candidate
from tools.nouns import Idea, LanguageName, Value

PERSON = "person"


class Start(Value):
    """A kernel and its plan; the plan is "" for a bare kernel. `name` is the file's."""

    language: LanguageName
    kernel: str
    plan: str = ""
    name: str = ""

    @property
    def idea(self) -> Idea:
        """The idea of the first round under which it is judged."""
        words = "as it is" if self.plan else "given a plan that launches it"
        return Idea(
            id="r1i0",
            title=f"Your own kernel, {words}",
            mechanism=f"the kernel of {self.name or 'the person'}, {words}",
            reason="the person gave it to start from",
            category="given",
            metric="time",
            round=1,
            origin=PERSON,
        )


class StartingPlanner:
    """Puts the person's idea before another planner's ideas of the first round."""

    def __init__(self, planner: Planner, start: Start) -> None:
        self._planner = planner
        self._start = start

    async def plan(self, situation: Situation) -> Proposal:
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

    async def write(self, order: Order) -> Answer:
        """The person's candidate where it is complete and asked for."""
        if order.idea.origin != PERSON or not self._start.plan:
            return await self._coder.write(order)
        start = self._start
        try:
            candidate = new_candidate(
                start.language, start.kernel, start.plan, idea=order.idea.id, origin="person"
            )
        except ContractError as error:
            return Answer(candidates=(), notes=(f"{start.name}: {error}",))
        return Answer(candidates=(candidate,))

    async def repair(self, order: Order, failure: Failure) -> Answer:
        """The other coder's."""
        return await self._coder.repair(order, failure)
