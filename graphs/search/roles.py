"""Which roles think in a run: kept with its terms, so that a resume and a replay have the same.

A run without a term has the search's own roles only: it was begun before there were others.
"""

import json

from kernelwright.agents.role import Role, StepRole
from kernelwright.agents.roles.registry import ROLES
from kernelwright.tools.archive import Archive, RunError

_TERM = "roles"


def keep_roles(archive: Archive) -> None:
    """Let the roles that have a step of their own now be those of a new run."""
    if names := [role.name for role in ROLES.steps]:
        archive.record_term(_TERM, json.dumps(names))


def roles_of(archive: Archive) -> tuple[Role[object], ...]:
    """The roles of this run.

    Raises:
        RunError: When the run has a role that is not known here.
    """
    kept = archive.term(_TERM)
    named: list[str] = json.loads(kept) if kept else []
    if unknown := [name for name in named if name not in ROLES.names]:
        raise RunError(f"run {archive.id} has a role {unknown[0]!r}, which is not known here")
    return tuple(role for role in ROLES if not isinstance(role, StepRole) or role.name in named)
