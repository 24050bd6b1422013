"""Every role of a search, and the set of agents that a search is run with: one a role.

Adding a role is a folder beside the others and its value in `ROLES`. Planner and coder may begin
with the person's own kernel (`agents.shared.facts`): it is an idea of the person's in the first
round, so that the ledger says what it brought and later ideas may start from it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.coder.model import CODER
from kernelwright.agents.critic.critic import Critic
from kernelwright.agents.critic.model import CRITIC
from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.profiler.profiler import PROFILER, Profiler
from kernelwright.agents.role import Appearance, Role, StepRole
from kernelwright.agents.shared.facts import PERSON, Start
from kernelwright.agents.strategist.strategist import STRATEGIST, Strategist
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Candidate


class RoleRegistry:
    """Roles by their names, in the order in which they were added."""

    def __init__(self, *roles: Role[object]) -> None:
        self._roles: dict[str, Role[object]] = {role.name: role for role in roles}

    def __iter__(self) -> Iterator[Role[object]]:
        """Every role."""
        return iter(tuple(self._roles.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """What the roles are called."""
        return tuple(self._roles)

    @property
    def steps(self) -> tuple[StepRole, ...]:
        """The roles that have a step of their own."""
        return tuple(role for role in self if isinstance(role, StepRole))

    def add(self, role: Role[object]) -> None:
        """One role more; ValueError where another has its name."""
        if role.name in self._roles:
            raise ValueError(f"there is a role {role.name!r} already")
        self._roles[role.name] = role

    def remove(self, role: Role[object]) -> None:
        """Take a role out again."""
        del self._roles[role.name]

    def appearance(self, name: str) -> Appearance:
        """How a role is shown; who is none of them (the assistant) by its bare name."""
        role = self._roles.get(name)
        return role.shown if role is not None else Appearance(name.capitalize())


ROLES = RoleRegistry(PLANNER, CODER, PROFILER, CRITIC, STRATEGIST)


Agent = TypeVar("Agent")


class AgentSet:
    """Who thinks in a search: one agent a role.

    Args:
        agents: The agents by the names of their roles, each as its role made it.
    """

    def __init__(self, agents: Mapping[str, object]) -> None:
        self._agents = dict(agents)

    @classmethod
    def of_search(
        cls,
        planner: Planner,
        coder: Coder,
        profiler: Profiler,
        critic: Critic,
        strategist: Strategist | None = None,
    ) -> "AgentSet":
        """The agents that every search has."""
        return cls({
            PLANNER.name: planner,
            CODER.name: coder,
            PROFILER.name: profiler,
            CRITIC.name: critic,
            STRATEGIST.name: strategist,
        })  # fmt: skip

    def of(self, role: Role[Agent]) -> Agent:
        """Who thinks for a role; KeyError where nobody does."""
        # A role makes agents of its own type only, and `replaced` keeps to that.
        return cast(Agent, self._agents[role.name])

    def replaced(self, role: Role[Agent], agent: Agent) -> "AgentSet":
        """The same agents with another one for a role."""
        return AgentSet({**self._agents, role.name: agent})

    def without(
        self, parts: Collection[str], seed: int, roles: Iterable[Role[object]]
    ) -> "AgentSet":
        """The same agents with parts switched off; steps of the graph leave out the other parts."""
        agents = self
        for role in roles:
            if role.part in parts and role.switch_off is not None:
                agents = agents.replaced(role, role.switch_off(agents.of(role), seed))
        return agents

    @property
    def planner(self) -> Planner:
        """Who has the ideas."""
        return self.of(PLANNER)

    @property
    def coder(self) -> Coder:
        """Who writes candidates."""
        return self.of(CODER)

    @property
    def profiler(self) -> Profiler:
        """Who says what bounds a candidate."""
        return self.of(PROFILER)

    @property
    def critic(self) -> Critic:
        """Who contrasts fast and slow candidates."""
        return self.of(CRITIC)

    @property
    def strategist(self) -> Strategist | None:
        """Who rewrites prompts; nobody does where no model thinks."""
        return self.of(STRATEGIST)


class StartingPlanner:
    """Puts the person's idea before another planner's ideas of the first round."""

    def __init__(self, planner: Planner, start: Start) -> None:
        self._planner = planner
        self._start = start

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """The other planner's proposal, with one idea more in the first round."""
        proposal = await self._planner.plan(planner_input)
        if planner_input.round > 1:
            return proposal
        return proposal.model_copy(update={"ideas": (self._start.idea, *proposal.ideas)})


class StartingCoder:
    """Hands out the person's candidate for the person's idea; another coder does all the rest."""

    def __init__(self, coder: Coder, start: Start) -> None:
        self._coder = coder
        self._start = start

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """The person's candidate where it is complete and asked for."""
        if request.idea.origin != PERSON or not self._start.plan:
            return await self._coder.write(request)
        start, made = self._start, list[Candidate]()
        for plan in (start.plan, *start.others):
            try:
                made.append(
                    new_candidate(
                        start.language, start.kernel, plan, idea=request.idea.id, origin="person"
                    )
                )
            except ContractError as error:
                return CoderAnswer(candidates=tuple(made), notes=(f"{start.name}: {error}",))
        return CoderAnswer(candidates=tuple(made))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """The other coder's."""
        return await self._coder.repair(request, failure)


class GivenCoder:
    """Hands out a candidate for each idea that came with one; another coder does all the rest.

    Args:
        coder: the other one.
        given: the candidates by their ideas.
    """

    def __init__(self, coder: Coder, given: Mapping[str, Candidate]) -> None:
        self._coder = coder
        self._given = given

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """The candidate that its idea came with."""
        known = self._given.get(request.idea.id)
        if known is None:
            return await self._coder.write(request)
        return CoderAnswer(candidates=(known.model_copy(update={"idea": request.idea.id}),))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """Nothing is put in the place of what came with its idea."""
        if request.idea.id in self._given:
            return CoderAnswer(candidates=())
        return await self._coder.repair(request, failure)
