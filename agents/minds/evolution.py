"""The population of an evolving prompt: which version speaks now, and what each one brought.

A version is judged by the best child it produced: the fastest correct candidate of the ideas (for
the planner) or among the candidates (for the coder) that were written under it. Everything here is
read from the archive, so a resumed run goes on with the version that the dead one used.
Not here: who rewrites a version (`agents.strategist`), and when (`graphs.nodes.evolving`).
"""

from pathlib import Path

from agents.strategist import Trial
from tools.archive import Archive, Standing, is_timed, ranked
from tools.nouns import EvolvingRole, StrategyVersion

HERE = Path(__file__).parent
ROLES: tuple[EvolvingRole, ...] = ("planner", "coder")


def first(role: EvolvingRole) -> StrategyVersion:
    """The version that every search begins with."""
    from agents.minds.prompts import section  # jinja2, which the playbook's searches do not need

    return StrategyVersion(
        id=f"{role}:0", role=role, text=section(HERE / f"strategy-{role}.md").strip()
    )


def current(archive: Archive, role: EvolvingRole) -> StrategyVersion:
    """The version under which this role writes now."""
    known = versions(archive, role)
    chosen = archive.term(_term(role))
    return next((item for item in known if item.id == chosen), known[0])


def choose(archive: Archive, version: StrategyVersion) -> None:
    """Let the role write under this version from now on; the version is kept too."""
    archive.record_strategy(version)
    archive.record_term(_term(version.role), version.id)


def versions(archive: Archive, role: EvolvingRole) -> tuple[StrategyVersion, ...]:
    """Every version of a role's section, in the order they were born; the first is always there."""
    known = tuple(item for item in archive.strategies() if item.role == role)
    return known or (first(role),)


def trials(archive: Archive, role: EvolvingRole) -> tuple[Trial, ...]:
    """What became of every version, in the order they were born."""
    standings = archive.standings()
    ranks = {item.candidate.id: rank for rank, item in enumerate(ranked(standings))}
    ideas = {idea.id: idea.strategy for idea in archive.ideas()}

    def children(version: StrategyVersion) -> list[Standing]:
        if role == "planner":
            return [s for s in standings if ideas.get(s.candidate.idea) == version.id]
        return [s for s in standings if s.candidate.strategy == version.id]

    return tuple(_trial(version, children(version), ranks) for version in versions(archive, role))


def fittest(tried: tuple[Trial, ...]) -> Trial | None:
    """The version with the best child; the older one of equals, None when none was tried."""
    found = [trial for trial in tried if trial.children]
    return min(found, key=lambda trial: (trial.rank is None, trial.rank or 0), default=None)


def _trial(version: StrategyVersion, of: list[Standing], ranks: dict[str, int]) -> Trial:
    best = min(
        (item for item in of if is_timed(item.evaluation)),
        key=lambda item: ranks[item.candidate.id],
        default=None,
    )
    return Trial(
        version=version,
        children=len(of),
        correct=sum(is_timed(item.evaluation) for item in of),
        best=best.candidate.id if best else "",
        best_ms=best.evaluation.median_ms if best else None,
        rank=ranks[best.candidate.id] if best else None,
    )


def _term(role: EvolvingRole) -> str:
    return f"strategy:{role}"
