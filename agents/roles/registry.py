"""Every role of a search, in one place.

Adding a role is a folder beside the others and its value in `ROLES`.
"""

from collections.abc import Iterator

from kernelwright.agents.coder.role import CODER
from kernelwright.agents.critic.role import CRITIC
from kernelwright.agents.planner.role import PLANNER
from kernelwright.agents.profiler.role import PROFILER
from kernelwright.agents.role import Appearance, Role, StepRole
from kernelwright.agents.strategist.role import STRATEGIST


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
