"""What a round teaches: profiles of the elites, the ledger, the critic's contrast, what is next.

The ledger says what every idea really brought and is renewed after each round: tuning may improve
an old idea, so every line is looked at again; what was best before an idea stays as it was when the
idea was first judged.

Prompts evolve here too: the fitter version is used on, and one role's prompt is rewritten a round.
One at a time, so that what the next round brings can be put down to one change. Without a
strategist nothing evolves and no model is asked.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from langgraph.runtime import Runtime

from kernelwright.agents.critic.critic import CriticInput
from kernelwright.agents.strategist.strategist import (
    ROLES,
    Strategist,
    StrategistInput,
    choose,
    current,
    fittest,
    moves,
    outcomes,
    trials,
    versions,
)
from kernelwright.graphs.run_view.events import (
    EVENT,
    Critiqued,
    Noted,
    Profiled,
    RoundFinished,
    StrategyEvolved,
)
from kernelwright.graphs.search.agent_set import spent_on_models
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import measured
from kernelwright.graphs.search.options.experience import enough
from kernelwright.graphs.search.options.near import ends_as_near
from kernelwright.graphs.search.options.remembering import is_settled, memories_of
from kernelwright.graphs.search.options.rounds import gives_up
from kernelwright.graphs.search.options.run_terms import holds_profiling, manner_of
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.tools.archive import (
    Archive,
    Elite,
    Standing,
    elites,
    improvements,
    is_timed,
    parents,
    population,
)
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.types import EvolvingRole, Idea, LedgerEntry, StrategyVersion


def enter(context: SearchContext, best_before_ms: float | None) -> None:
    """Write down what the ideas brought; `best_before_ms` is of the round that is going on."""
    archive = context.archive
    of: dict[str, list[Standing]] = defaultdict(list)
    for item in archive.standings():
        of[item.candidate.idea].append(item)
    known = {entry.idea: entry for entry in archive.ledger()}
    entries = []
    for idea in archive.ideas():
        held = known.get(idea.id)
        before_ms = held.best_before_ms if held else best_before_ms
        if held is None or context.entered.get(idea.id) != _marks(of[idea.id]):
            entries.append(_entry(idea, of[idea.id], before_ms))
            context.entered[idea.id] = _marks(of[idea.id])
    archive.record_ledger(*entries)


def _marks(standings: Sequence[Standing]) -> tuple[tuple[int, str], ...]:
    """What changes when an idea gets another candidate, or one of them a better judgement."""
    return tuple((item.number, item.effort) for item in standings)


def of_idea(idea: Idea, standings: Sequence[Standing]) -> list[Standing]:
    """Those of an idea's candidates that are what the idea says.

    Where the playbook wrote, the first strategies are the idea's, and a repair that fell back to
    others is not what the idea did. A model may label every attempt anew: all that it wrote
    counts, and only what the playbook put in its place does not.
    """
    if idea.recipe and standings:
        strategies = standings[0].candidate.strategies
        return [item for item in standings if item.candidate.strategies == strategies]
    return [item for item in standings if item.candidate.origin != "playbook"]


def _entry(idea: Idea, standings: Sequence[Standing], best_before_ms: float | None) -> LedgerEntry:
    of = of_idea(idea, standings)
    times = [
        item.evaluation.median_ms
        for item in of
        if is_timed(item.evaluation) and item.evaluation.median_ms is not None
    ]
    return LedgerEntry(
        idea=idea.id,
        category=idea.category,
        predicted_ms=idea.predicted_ms,
        measured_ms=min(times, default=None),
        best_before_ms=best_before_ms,
        candidates=len(of),
        correct=len(times),
        round=idea.round,
    )


# Elites whose profile is read in a round, and that the next round may go on from.
PROFILED = 3
PARENTS = 3
_NEEDLESS = "the search ends with this round, as a near task's did where it stands"
# A candidate this close to the floor cannot be improved by more than its timing varies.
NOTHING_LEFT = 0.99
# A floor that is undercut by more than this is none: the working set stays in a cache.
UNDERCUT = 1.05


async def profile(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Read what bounds the fastest elites, the first of them closely.

    Where a person said how long the whole may take, not where no round can follow that would go by
    it: behind the profile half of what this round took so far has to be left.
    """
    context, round = runtime.context, state["round"]
    if holds_profiling(context.archive):
        next_s = _round_took_s(context, round) / 2
        until_s = context.searching_ends_s - _profiling_takes_s(context) - next_s
        if context.is_out_of_time(f"profile:{round}", until_s):
            return {}
    needless = ends_as_near(context, state["best"], round) and _NEEDLESS
    for number, elite in enumerate(elites(context.archive.standings())[:PROFILED]):
        await _read(context, elite, round, closely=number == 0, needless=needless)
    return {}


def _round_took_s(context: SearchContext, round: int) -> float:
    """Seconds since this round was planned, which no time between two sessions is part of."""
    stored = context.archive.event(f"ideas:{round}")
    planned = datetime.now(UTC) if stored is None else EVENT.validate_json(stored.payload).at
    return min((datetime.now(UTC) - planned).total_seconds(), context.searched_s)


# What the first profile beside a GPU takes where none of its processes stands ready: 21 to 26 s in
# four of four runs on an H200 (benchmarks/results/h200/real_models.jsonl), and 17 to 24 s in the
# first search on each of four, where later ones took 7 (earlier_runs.md there). And what it takes
# more for each node of a model, which two more processes make anew: 55 s in all for a GPT of 670
# (real_models_later.jsonl there).
_COLD_S, _A_NODE_S = 20.0, 0.05


def _profiling_takes_s(context: SearchContext) -> float:
    """What profiling a candidate takes: as this run's did, or an earlier one's on the device.

    The first one beside a GPU may have to start its processes and make the model anew, and does so
    where nothing was profiled before.
    """
    known_s = context.archive.profile_s() or context.pace.profile_s
    if context.hardware.kind != "cuda" or context.archive.profiling_s():
        return known_s
    rules = context.executor.rules
    cold_s = _COLD_S if not known_s or (rules is not None and rules.is_brief) else 0.0
    return max(known_s, cold_s + _A_NODE_S * len(context.task.graph.nodes))


async def critique(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Write down what the ideas brought, and let the critic contrast what was measured."""
    context, round = runtime.context, state["round"]
    enter(context, state["before_ms"])
    known = [item for item in context.archive.analyses() if item.round == round]
    analysis = (
        known[0] if known else await context.agents.critic.critique(_critic_input(context, state))
    )
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
    # Where the library had the first round to itself, nobody else had a try yet.
    patient = improved or (state["round"] == 1 and memories_of(context.archive).alone)
    update: Update = {
        "parents": _parents(context, state, found),
        "mark_ms": best_ms if improved else state["mark_ms"],
        "stale_rounds": 0 if patient else state["stale_rounds"] + 1,
    }
    # The floor is a matter of the time that was measured, not of a comparable one.
    measured_ms = context.measured_ms(state["best"])
    settled = is_settled(context.archive, state["best"])
    why = why_stop(context, state["round"], measured_ms, update["stale_rounds"], settled)
    why = why or ends_as_near(context, state["best"], state["round"])
    why = why or (
        "" if context.awaits_regions(state["round"]) else enough(context, state["round"], "end")
    )
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
    if not context.steers("archive"):
        return [state["best"]] if state["best"] else []
    standings = archive.standings()
    if profile.islands > 1:
        standings = population(standings, archive.ideas(), state["round"] + 1, profile.islands)
        found = elites(standings)
    chosen = parents(found, PARENTS, improvements(standings))
    return [elite.standing.candidate.id for elite in chosen]


def why_stop(
    context: SearchContext, round: int, best_ms: float | None, stale_rounds: int, settled: bool
) -> str:
    """The reason to stop after this round; "" to go on.

    `settled` says that an earlier search was as long on this very task and found the best.
    """
    if best_ms is not None and _at_the_floor(context, best_ms):
        return f"the best candidate runs at {context.floor_ms / best_ms:.0%} of the floor"
    if round >= (rounds := context.rounds_allowed(round)):
        return f"the budget of {rounds} rounds is used up"
    if context.is_out_of_time(f"round:{round}"):
        return f"the budget of {context.seconds_allowed(round):g} seconds is used up"
    if spent := _spent(context, round):
        return spent
    # A model's regions have their turn where searching it as one brought nothing more.
    return "" if context.awaits_regions(round) else gives_up(context, round, stale_rounds, settled)


def _spent(context: SearchContext, round: int) -> str:
    """Why no model is asked any more; a resume may have raised the budget."""
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


async def _read(
    context: SearchContext, elite: Elite, round: int, *, closely: bool, needless: str
) -> None:
    """Read an elite once; the event goes first, as it alone keeps the words."""
    candidate = elite.standing.candidate
    if context.archive.profile(candidate.id) is not None:
        return
    profile = await measured(context, candidate, foremost=closely, needless=needless)
    reading = await context.agents.profiler.profile(
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


def _critic_input(context: SearchContext, state: SearchState) -> CriticInput:
    archive, round, manner = context.archive, state["round"], manner_of(context.archive)
    profiled = archive.profile(state["best"]) if state["best"] else None
    standings, told = archive.standings(), context.told.items()
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
        explained=tuple((item.candidate, item.explanation) for item in told if item.explanation),
        profiled=tuple((item.candidate, item.evidence) for item in told) if manner.readings else (),
        steering=context.steering_for(f"critic:{round}"),
        manner=manner,
        last=not manner.after_the_last and round >= context.rounds_allowed(round),
        steers=context.steers("contrast"),
    )


def _counts(best_ms: float | None, mark_ms: float | None, minimum_gain: float) -> bool:
    """Whether the best is enough better than when it last counted."""
    if best_ms is None:
        return False
    return mark_ms is None or mark_ms / best_ms >= minimum_gain


async def evolve(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Keep what brought the best child, and have one role's section rewritten."""
    context, round = runtime.context, state["round"]
    strategist = context.agents.strategist
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
