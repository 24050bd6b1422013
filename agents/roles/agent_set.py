"""The set of agents that thinks in one search: one mind a role."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar, cast

from kernelwright.agents.coder.coder import Coder
from kernelwright.agents.coder.role import CODER
from kernelwright.agents.critic.critic import Critic
from kernelwright.agents.critic.role import CRITIC
from kernelwright.agents.planner.planner import Planner
from kernelwright.agents.planner.role import PLANNER
from kernelwright.agents.profiler.profiler import Profiler
from kernelwright.agents.profiler.role import PROFILER
from kernelwright.agents.role import Role
from kernelwright.agents.strategist.role import STRATEGIST
from kernelwright.agents.strategist.strategist import Strategist

Mind = TypeVar("Mind")


class AgentSet:
    """Who thinks in a search: one mind a role.

    Args:
        minds: The minds by the names of their roles, each as its role made it.
    """

    def __init__(self, minds: Mapping[str, object]) -> None:
        self._minds = dict(minds)

    @classmethod
    def of_search(
        cls,
        planner: Planner,
        coder: Coder,
        profiler: Profiler,
        critic: Critic,
        strategist: Strategist | None = None,
    ) -> "AgentSet":
        """The minds that every search has."""
        return cls({
            PLANNER.name: planner,
            CODER.name: coder,
            PROFILER.name: profiler,
            CRITIC.name: critic,
            STRATEGIST.name: strategist,
        })  # fmt: skip

    def of(self, role: Role[Mind]) -> Mind:
        """Who thinks for a role; KeyError where nobody does."""
        # A role makes minds of its own type only, and `replaced` keeps to that.
        return cast(Mind, self._minds[role.name])

    def replaced(self, role: Role[Mind], mind: Mind) -> "AgentSet":
        """The same minds with another one for a role."""
        return AgentSet({**self._minds, role.name: mind})

    def without(
        self, parts: Collection[str], seed: int, roles: Iterable[Role[object]]
    ) -> "AgentSet":
        """The same minds with parts switched off; steps of the graph leave out the other parts."""
        minds = self
        for role in roles:
            if role.part in parts and role.switch_off is not None:
                minds = minds.replaced(role, role.switch_off(minds.of(role), seed))
        return minds

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
