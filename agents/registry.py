"""Every role of a search, in one place, and the set of agents that thinks in one search.

Adding a role is a folder beside the others and its value in `ROLES`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from agents.coder import Coder
from agents.critic import Critic
from agents.planner import Planner
from agents.profiler import Profiler
from agents.role import Appearance, Role, StepRole
from agents.roles.coder import CODER
from agents.roles.critic import CRITIC
from agents.roles.planner import PLANNER
from agents.roles.profiler import PROFILER
from agents.roles.strategist import STRATEGIST
from agents.strategist import Strategist

Mind = TypeVar("Mind")


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


class Minds:
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
    ) -> "Minds":
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

    def replaced(self, role: Role[Mind], mind: Mind) -> "Minds":
        """The same minds with another one for a role."""
        return Minds({**self._minds, role.name: mind})

    def without(self, parts: Collection[str], seed: int, roles: Iterable[Role[object]]) -> "Minds":
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
