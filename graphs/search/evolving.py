"""Evolving prompts at work: the fitter version speaks on, and one role's is rewritten a round.

One at a time, so that what the next round brings can be put down to one change. Without a
strategist nothing evolves and nobody is asked.
"""

from langgraph.runtime import Runtime

from kernelwright.agents.strategist.evolution import (
    ROLES,
    choose,
    current,
    fittest,
    moves,
    outcomes,
    trials,
    versions,
)
from kernelwright.agents.strategist.strategist import Strategist, StrategistInput
from kernelwright.graphs.run_view.events import Noted, StrategyEvolved
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import EvolvingRole, StrategyVersion


async def evolve(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Keep what brought the best child, and have one role's section rewritten."""
    context, round = runtime.context, state["round"]
    strategist = context.minds.strategist
    if strategist is None or "prompts" in context.profile.without:
        return {}
    role = turn(context.archive, round)
    for each in ROLES:
        _settle(context, each, round)
    if role is not None:
        await _rewrite(context, strategist, role, round)
    return {}


def turn(archive: Archive, round: int) -> EvolvingRole | None:
    """Whose section is rewritten after this round; None when nobody's was tried.

    It is the turn of the one whose version was tried and who waited longest, the planner of two
    equals; and of the one who had it already, when the step is taken again.
    """
    waiting: list[tuple[int, EvolvingRole]] = []
    for role in ROLES:
        newest = versions(archive, role)[-1].round
        if newest == round:
            return role
        if _was_tried(archive, role):
            waiting.append((newest, role))
    return min(waiting, key=lambda pair: pair[0])[1] if waiting else None


def _settle(context: SearchContext, role: EvolvingRole, round: int) -> None:
    """Go back to an older version when the present one was tried and found worse."""
    archive = context.archive
    now, best = current(archive, role), fittest(trials(archive, role))
    if not _was_tried(archive, role) or best is None or best.version == now:
        return
    event = StrategyEvolved(round=round, version=best.version, before=now.text)
    context.emit(event, key=f"strategy:back:{role}:{round}")
    choose(archive, best.version)


async def _rewrite(
    context: SearchContext, strategist: Strategist, role: EvolvingRole, round: int
) -> None:
    """Have the version that speaks now rewritten; what is known already is not asked again."""
    archive = context.archive
    known = [item for item in versions(archive, role) if item.round == round]
    version = known[0] if known else await _ask(context, strategist, role, round)
    if version is None:
        return
    parent = next(item for item in versions(archive, role) if item.id == version.parent)
    archive.record_strategy(parent)
    archive.record_strategy(version)
    event = StrategyEvolved(round=round, version=version, before=parent.text)
    context.emit(event, key=f"strategy:{version.id}")
    choose(archive, version)


async def _ask(
    context: SearchContext, strategist: Strategist, role: EvolvingRole, round: int
) -> StrategyVersion | None:
    archive = context.archive
    analyses = archive.analyses()
    retrospect = StrategistInput(
        role=role,
        round=round,
        parent=current(archive, role),
        trials=trials(archive, role),
        outcomes=outcomes(archive, role),
        moves=moves(archive.standings(), archive.ideas()),
        analysis=analyses[-1] if analyses else None,
    )
    answered = await strategist.rewrite(retrospect)
    for number, words in enumerate(answered.notes):
        context.emit(Noted(round=round, words=words), key=f"strategist:{role}:{round}:{number}")
    return answered.version


def _was_tried(archive: Archive, role: EvolvingRole) -> bool:
    now = current(archive, role)
    return any(trial.children for trial in trials(archive, role) if trial.version.id == now.id)
