"""What a round teaches: profiles of the elites, the ledger, the critic's contrast, what is next."""

from langgraph.runtime import Runtime
from pydantic import BaseModel

from kernelwright.agents.critic.critic import CriticInput
from kernelwright.graphs.run_view.events import Critiqued, Noted, Profiled, RoundFinished
from kernelwright.graphs.search.agent_set import spent_on_models
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.hearing import manner_of
from kernelwright.graphs.search.ledger import enter
from kernelwright.graphs.search.profiling import measured
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.tools.archive import Elite, elites, improvements, parents, population
from kernelwright.tools.profile import measured_evidence

# Elites whose profile is read in a round, and that the next round may go on from.
PROFILED = 3
PARENTS = 3
# A candidate this close to the floor cannot be improved by more than its timing varies.
NOTHING_LEFT = 0.99
# A floor that is undercut by more than this is none: the working set stays in a cache.
UNDERCUT = 1.05


async def profile(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Read what bounds the fastest elites, the first of them closely."""
    context, round = runtime.context, state["round"]
    for number, elite in enumerate(elites(context.archive.standings())[:PROFILED]):
        await _read(context, elite, round, closely=number == 0)
    return {}


async def critique(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Write down what the ideas brought, and let the critic contrast what was measured."""
    context, round = runtime.context, state["round"]
    enter(context, state["before_ms"])
    known = [item for item in context.archive.analyses() if item.round == round]
    analysis = known[0] if known else await context.minds.critic.critique(_hearing(context, state))
    context.archive.record_analysis(analysis)
    for number, words in enumerate(analysis.notes):
        context.emit(Noted(round=round, words=words), key=f"critic:{round}:{number}")
    context.emit(Critiqued(round=round, analysis=analysis), key=f"critiqued:{round}")
    return {}


async def select(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Choose the elites to go on from, and decide whether to."""
    context, best_ms = runtime.context, state["best_ms"]
    found = elites(context.archive.standings())
    improved = _counts(best_ms, state["mark_ms"], context.profile.minimum_gain)
    update: Update = {
        "parents": _parents(context, state, found),
        "mark_ms": best_ms if improved else state["mark_ms"],
        "stale_rounds": 0 if improved else state["stale_rounds"] + 1,
    }
    # The floor is a matter of the time that was measured, not of a comparable one.
    measured_ms = context.measured_ms(state["best"])
    why = why_stop(context, state["round"], measured_ms, update["stale_rounds"])
    finished = RoundFinished(
        round=state["round"],
        best_ms=measured_ms,
        elites=len(found),
        elapsed_s=context.archive.spent_s(),
        why_stop=why,
    )
    context.emit(finished, key=f"round:{state['round']}")
    return {**update, "why_stop": why}


def _parents(context: SearchContext, state: SearchState, found: tuple[Elite, ...]) -> list[str]:
    """Ids of the elites that the next round goes on from, of its own island."""
    profile, archive = context.profile, context.archive
    if "archive" in profile.without:
        return [state["best"]] if state["best"] else []
    standings = archive.standings()
    if profile.islands > 1:
        standings = population(standings, archive.ideas(), state["round"] + 1, profile.islands)
        found = elites(standings)
    chosen = parents(found, PARENTS, improvements(standings))
    return [elite.standing.candidate.id for elite in chosen]


def why_stop(context: SearchContext, round: int, best_ms: float | None, stale_rounds: int) -> str:
    """The reason to stop after this round; "" to go on."""
    profile = context.profile
    if best_ms is not None and _at_the_floor(context, best_ms):
        return f"the best candidate runs at {context.floor_ms / best_ms:.0%} of the floor"
    if round >= (rounds := context.rounds_allowed(round)):
        return f"the budget of {rounds} rounds is used up"
    if context.is_out_of_time(f"round:{round}"):
        return f"the budget of {context.seconds_allowed(round):g} seconds is used up"
    if spent := _spent(context, round):
        return spent
    if stale_rounds >= profile.patience:
        return f"nothing improved for {stale_rounds} round{'s' if stale_rounds > 1 else ''}"
    return ""


def _spent(context: SearchContext, round: int) -> str:
    """Why no model is asked any more; a resume may have filled the purse."""
    return context.decide(
        f"purse:{round}", lambda: spent_on_models(context.archive, context.profile)
    )


def _at_the_floor(context: SearchContext, best_ms: float) -> bool:
    """Close enough to the floor and ahead of every baseline, or so close that nothing is left."""
    fraction = context.floor_ms / best_ms
    if fraction >= NOTHING_LEFT:
        return fraction <= UNDERCUT
    ahead = best_ms < context.best_baseline_ms
    return ahead and fraction >= context.profile.stop_at_floor_fraction


async def _read(context: SearchContext, elite: Elite, round: int, *, closely: bool) -> None:
    """Read an elite once; the event goes first, as it alone keeps the words."""
    candidate = elite.standing.candidate
    if context.archive.profile(candidate.id) is not None:
        return
    profile = await measured(context, candidate, foremost=closely)
    reading = await context.minds.profiler.profile(
        candidate,
        elite.standing.evaluation,
        context.task,
        context.hardware,
        measured=measured_evidence(profile),
        closely=closely,
        round=round,
    )
    for number, words in enumerate(reading.notes):
        context.emit(Noted(round=round, words=words), key=f"profiler:{candidate.id}:{number}")
    event = Profiled(
        round=round,
        candidate=candidate.id,
        evidence=reading.evidence,
        symptoms=reading.symptoms,
        explanation=reading.explanation,
    )
    context.emit(event, key=f"profiled:{candidate.id}")
    context.archive.record_profile(candidate.id, reading.evidence, reading.symptoms)


def _hearing(context: SearchContext, state: SearchState) -> CriticInput:
    archive, round, manner = context.archive, state["round"], manner_of(context.archive)
    profiled = archive.profile(state["best"]) if state["best"] else None
    standings = archive.standings()
    return CriticInput(
        round=round,
        standings=standings,
        best=next((item for item in standings if item.candidate.id == state["best"]), None),
        analyses=tuple(item for item in archive.analyses() if item.round < round),
        symptoms=profiled[1] if profiled else (),
        seed=context.seed,
        task=context.task,
        hardware=context.hardware,
        floor_ms=context.floor_ms,
        baseline_ms=context.best_baseline_ms or None,
        ideas=archive.ideas(),
        ledger=archive.ledger(),
        explained=_explained(context),
        steering=context.wishes(f"critic:{round}"),
        manner=manner,
        last=not manner.after_the_last and round >= context.rounds_allowed(round),
    )


class _Told(BaseModel):
    """Of a `Profiled` event what the critic hears: its readings are in the archive anyway."""

    candidate: str
    explanation: str = ""


def _explained(context: SearchContext) -> tuple[tuple[str, str], ...]:
    """What the profiler said of candidates in words, by their id."""
    stored = context.archive.events(kind="profiled")
    told = (_Told.model_validate_json(item.payload) for item in stored)
    return tuple((event.candidate, event.explanation) for event in told if event.explanation)


def _counts(best_ms: float | None, mark_ms: float | None, minimum_gain: float) -> bool:
    """Whether the best is enough better than when it last counted."""
    if best_ms is None:
        return False
    return mark_ms is None or mark_ms / best_ms >= minimum_gain
