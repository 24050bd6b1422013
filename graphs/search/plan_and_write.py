"""Nodes in which agents plan and write: ideas of a round, and candidates for each of them.

A role with a step of its own is asked here too: once a round, and its answer is told and kept.
"""

from typing import Protocol

from langgraph.runtime import Runtime

from kernelwright.agents.coder.coder import CoderAnswer, CoderRequest, Failure
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.role import RoundView, StepRole
from kernelwright.agents.shared.candidate_priority import doubted_in
from kernelwright.agents.shared.facts import loop_times
from kernelwright.agents.strategist.strategist import current, moves
from kernelwright.graphs.run_view.events import (
    CandidateWritten,
    IdeasProposed,
    Noted,
    Profiled,
    RoleAnswered,
)
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.rounds import wanted_in
from kernelwright.graphs.search.options.run_terms import (
    counters_steer,
    is_distinct,
    steering_symptoms,
)
from kernelwright.graphs.search.options.second_chances import reasons
from kernelwright.graphs.search.state import SearchState, Update, Work
from kernelwright.tools.archive import Author, Standing, island
from kernelwright.tools.types import (
    Candidate,
    Evidence,
    EvolvingRole,
    Idea,
    StrategyVersion,
    Symptom,
)


class Step(Protocol):
    """A step of the graph."""

    async def __call__(self, state: SearchState, runtime: Runtime[SearchContext]) -> Update:
        """Take it."""
        ...


def step_of(role: StepRole) -> Step:
    """The step that asks this role; one that is taken again asks nothing that is known."""

    async def ask(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
        context = runtime.context
        view = _view(context, state, role)
        key = f"role:{role.name}:{view.round}"
        if context.archive.event(key) is not None:
            return {}
        answer = await context.agents.of(role)(view)
        for number, words in enumerate(answer.notes):
            context.emit(Noted(round=view.round, words=words), key=f"{key}:{number}")
        event = RoleAnswered(
            round=view.round, role=role.name, words=answer.words, answer=answer.model_dump_json()
        )
        context.emit(event, key=key)
        return {}

    return ask


def _view(context: SearchContext, state: SearchState, role: StepRole) -> RoundView:
    archive, standings = context.archive, context.archive.standings()
    round = state["round"] + 1 if role.place == "before_plan" else state["round"]
    profiled = archive.profile(state["best"]) if state["best"] else None
    return RoundView(
        round=round,
        task=context.task,
        hardware=context.hardware,
        floor_ms=context.floor_ms,
        baseline_ms=context.best_baseline_ms or None,
        best=next((item for item in standings if item.candidate.id == state["best"]), None),
        standings=standings,
        ideas=archive.ideas(),
        ledger=archive.ledger(),
        analyses=archive.analyses(),
        symptoms=profiled[1] if profiled else (),
        steering=context.steering_for(f"{role.name}:{round}"),
    )


NOTHING_LEFT = "nothing is left to try"


async def plan(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Ask the planner for the ideas of the next round."""
    context, round = runtime.context, state["round"] + 1
    await context.prepared(round)
    ideas = context.archive.ideas(round) or _told(context, round)
    if not ideas:
        ideas = await _proposed(state, context, round)
    context.archive.record_ideas(ideas)
    if not ideas:
        return {"why_stop": context.decided(_none_in(round)) or NOTHING_LEFT, "ideas": []}
    return {
        "round": round,
        "ideas": [idea.id for idea in ideas],
        "written": None,
        "attempt": 0,
        "failed": [],
        "before_ms": context.measured_ms(state["best"]),
    }


async def _proposed(state: SearchState, context: SearchContext, round: int) -> tuple[Idea, ...]:
    """The planner's ideas; where it has none, regions that were put off have their turn now."""
    proposal = await context.agents.planner.plan(_planner_input(state, context, round))
    if not proposal.ideas and context.awaits_regions(round):
        await context.prepared(round, now=True)
        proposal = await context.agents.planner.plan(_planner_input(state, context, round))
    if proposal.none_ever:
        context.decide(_none_in(round), lambda: proposal.none_ever)
    _note(context, round, f"plan:{round}", proposal.notes)
    event = IdeasProposed(round=round, ideas=proposal.ideas, reasoning=proposal.reasoning)
    context.emit(event, key=f"ideas:{round}")
    return proposal.ideas


def _none_in(round: int) -> str:
    return f"no idea:{round}"


def _told(context: SearchContext, round: int) -> tuple[Idea, ...]:
    """Ideas that were told just before the step was cut off."""
    stored = context.archive.event(f"ideas:{round}")
    return IdeasProposed.model_validate_json(stored.payload).ideas if stored else ()


async def write(state: Work, runtime: Runtime[SearchContext]) -> Update:
    """Ask the coder for candidates of one idea, or for a repair of one of them."""
    context = runtime.context
    written = [
        item for item in context.archive.candidates() if item.candidate.idea == state["idea"]
    ]
    if state["failed"]:
        known = [item.candidate for item in written if state["failed"] in item.candidate.parents]
    else:
        known = [item.candidate for item in written if item.round == state["round"]]
    by: Author = "repair" if state["failed"] else "coder"
    if not known:
        known = await _ask(context, state)
        context.archive.record_candidates(known, state["round"], by)
    for candidate in known:
        event = CandidateWritten(round=state["round"], candidate=candidate, by=by)
        context.emit(event, key=f"written:{candidate.id}")
    return {"written": [candidate.id for candidate in known]}


async def _ask(context: SearchContext, work: Work) -> list[Candidate]:
    """The coder's candidates that are really new; what it could not write is noted."""
    archive = context.archive
    key = f"seen:{work['round']}:{work['idea']}:{work['failed']}"
    # What siblings write meanwhile is not seen, whether they were faster or the step is repeated.
    seen = int(context.decide(key, lambda: str(len(archive.candidates()))))
    before = {item.candidate.id: item.candidate for item in archive.candidates()[:seen]}
    request = _coder_request(context, work, tuple(before.values()))
    answer = await _answer(context, work, request)
    _note(context, work["round"], f"{work['idea']}:{work['failed']}", answer.notes)
    return [candidate for candidate in answer.candidates if candidate.id not in before]


def _coder_request(
    context: SearchContext, work: Work, written: tuple[Candidate, ...]
) -> CoderRequest:
    archive, idea = context.archive, _idea(context, work["idea"])
    analyses = archive.analyses() if context.steers("contrast") else ()
    judged = archive.standings()
    standings = {item.candidate.id: item for item in judged}
    start = [idea.parent] if idea.parent else []
    return CoderRequest(
        idea=idea,
        count=1 if work["failed"] else context.profile.candidates_per_idea,
        written=written,
        analysis=analyses[-1] if analyses else None,
        seed=context.seed,
        round=work["round"],
        attempt=_attempt(context, work["failed"]),
        parents=_known(standings, list(dict.fromkeys((*start, *work.get("parents", []))))),
        ledger=archive.ledger(),
        symptoms=_symptoms(context, work.get("best", "")),
        steering=context.steering_for(f"coder:{work['round']}:{idea.id}:{work['failed']}"),
        strategy=_strategy(context, "coder"),
        moves=() if work["failed"] else _moves(context),
        judged=() if work["failed"] or "contrast" in context.profile.without else judged,
        doubts=doubted_in(judged),
        distinct=not work["failed"] and is_distinct(archive),
    )


def _attempt(context: SearchContext, failed: str) -> int:
    """How many repairs of its idea this one would make; 0 for a first version.

    Counted along the line of failures, so that a step taken again counts the same.
    """
    written = {item.candidate.id: item for item in context.archive.candidates()}
    count, at = 0, written.get(failed)
    while at is not None:
        count += 1
        idea = at.candidate.idea
        line = (written[id] for id in at.candidate.parents if id in written)
        repaired = at.author == "repair"
        at = next((item for item in line if repaired and item.candidate.idea == idea), None)
    return count


async def _answer(context: SearchContext, work: Work, request: CoderRequest) -> CoderAnswer:
    if not work["failed"]:
        return await context.agents.coder.write(request)
    evaluation = context.archive.evaluation(work["failed"])
    if evaluation is None:
        return CoderAnswer(candidates=())
    failed = context.archive.candidate(work["failed"])
    flaw = reasons(context, failed, evaluation)
    failure = Failure(candidate=failed, evaluation=evaluation, flaw=flaw)
    return await context.agents.coder.repair(request, failure)


def _planner_input(state: SearchState, context: SearchContext, round: int) -> PlannerInput:
    archive = context.archive
    analyses = archive.analyses() if context.steers("contrast") else ()
    judged, tried = archive.standings(), archive.ideas()
    standings = {item.candidate.id: item for item in judged}
    return PlannerInput(
        round=round,
        rounds=context.profile.rounds,
        wanted=wanted_in(context, round),
        floor_ms=context.floor_ms,
        allow=context.task.allow,
        baseline_ms=context.best_baseline_ms,
        best=standings.get(state["best"]),
        parents=_known(standings, state["parents"]),
        tried=tried,
        ledger=archive.ledger(),
        analysis=analyses[-1] if analyses else None,
        symptoms=_symptoms(context, state["best"]),
        loop_ms=_loop_ms(context, state["best"]),
        explanation=_explanation(context, state["best"]),
        readings=_readings(context, state["best"]),
        steering=context.steering_for(f"planner:{round}"),
        standings=judged,
        strategy=_strategy(context, "planner"),
        island=island(round, context.islands) + 1,
        islands=context.islands,
        moves=_moves(context),
    )


def _symptoms(context: SearchContext, candidate: str) -> tuple[Symptom, ...]:
    return steering_symptoms(context.archive, candidate)


def _loop_ms(context: SearchContext, candidate: str) -> tuple[tuple[str, float], ...]:
    """What the best candidate's loops took, where this run lets profilers of a device steer."""
    if not candidate or not counters_steer(context.archive):
        return ()
    return loop_times(_readings(context, candidate), context.archive.candidate(candidate))


def _readings(context: SearchContext, candidate: str) -> tuple[Evidence, ...]:
    """What the profiler read of a candidate, measured readings included."""
    profiled = context.archive.profile(candidate) if candidate else None
    return profiled[0] if profiled else ()


def _moves(context: SearchContext) -> tuple[str, ...]:
    """Which moves between behaviours paid; the playbook reads none."""
    if context.agents.strategist is None or "archive" in context.profile.without:
        return ()
    return moves(context.archive.standings(), context.archive.ideas())


def _explanation(context: SearchContext, candidate: str) -> str:
    """What the profiler said of a candidate in words, which only its event keeps."""
    stored = context.archive.event(f"profiled:{candidate}") if candidate else None
    return Profiled.model_validate_json(stored.payload).explanation if stored else ""


def _strategy(context: SearchContext, role: EvolvingRole) -> StrategyVersion | None:
    """The section that a model's prompt has for now; the playbook reads none."""
    return current(context.archive, role) if context.agents.strategist is not None else None


def _note(context: SearchContext, round: int, about: str, notes: tuple[str, ...]) -> None:
    """Tell what went wrong on the way, once."""
    for number, words in enumerate(notes):
        context.emit(Noted(round=round, words=words), key=f"note:{round}:{about}:{number}")


def _known(standings: dict[str, Standing], ids: list[str]) -> tuple[Standing, ...]:
    return tuple(standings[id] for id in ids if id in standings)


def _idea(context: SearchContext, id: str) -> Idea:
    return next(idea for idea in context.archive.ideas() if idea.id == id)
