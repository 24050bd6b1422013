"""Planner and coder at work: ideas of a round, and candidates for each of them."""

from langgraph.runtime import Runtime

from agents.coder import Answer, Failure, Order
from agents.planner import Situation
from graphs.context import SearchContext
from graphs.events import CandidateWritten, IdeasProposed, Noted
from graphs.state import SearchState, Update, Work
from tools.archive import Author, Standing
from tools.nouns import Candidate, Idea

NOTHING_LEFT = "nothing is left to try"


async def plan(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Ask the planner for the ideas of the next round."""
    context, round = runtime.context, state["round"] + 1
    ideas = context.archive.ideas(round) or _told(context, round)
    if not ideas:
        proposal = await context.minds.planner.plan(_situation(state, context, round))
        ideas = proposal.ideas
        event = IdeasProposed(round=round, ideas=ideas, reasoning=proposal.reasoning)
        context.emit(event, key=f"ideas:{round}")
    context.archive.record_ideas(ideas)
    if not ideas:
        return {"why_stop": NOTHING_LEFT, "ideas": []}
    return {
        "round": round,
        "ideas": [idea.id for idea in ideas],
        "written": None,
        "attempt": 0,
        "failed": [],
        "before_ms": context.measured_ms(state["best"]),
    }


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
    before = {item.candidate.id: item.candidate for item in archive.candidates()}
    analyses = archive.analyses()
    order = Order(
        idea=_idea(context, work["idea"]),
        count=1 if work["failed"] else context.profile.candidates_per_idea,
        written=tuple(before.values()),
        analysis=analyses[-1] if analyses else None,
        seed=context.seed,
    )
    answer = await _answer(context, work, order)
    for number, words in enumerate(answer.notes):
        key = f"note:{work['round']}:{work['idea']}:{work['failed']}:{number}"
        context.emit(Noted(round=work["round"], words=words), key=key)
    return [candidate for candidate in answer.candidates if candidate.id not in before]


async def _answer(context: SearchContext, work: Work, order: Order) -> Answer:
    if not work["failed"]:
        return await context.minds.coder.write(order)
    evaluation = context.archive.evaluation(work["failed"])
    if evaluation is None:
        return Answer(candidates=())
    failed = context.archive.candidate(work["failed"])
    failure = Failure(candidate=failed, evaluation=evaluation)
    return await context.minds.coder.repair(order, failure)


def _situation(state: SearchState, context: SearchContext, round: int) -> Situation:
    archive = context.archive
    analyses = archive.analyses()
    standings = {item.candidate.id: item for item in archive.standings()}
    profiled = archive.profile(state["best"]) if state["best"] else None
    return Situation(
        round=round,
        wanted=context.profile.ideas_per_round,
        floor_ms=context.floor_ms,
        baseline_ms=context.best_baseline_ms,
        best=standings.get(state["best"]),
        parents=_known(standings, state["parents"]),
        tried=archive.ideas(),
        ledger=archive.ledger(),
        analysis=analyses[-1] if analyses else None,
        symptoms=profiled[1] if profiled else (),
        steering=context.control.steering,
    )


def _known(standings: dict[str, Standing], ids: list[str]) -> tuple[Standing, ...]:
    return tuple(standings[id] for id in ids if id in standings)


def _idea(context: SearchContext, id: str) -> Idea:
    return next(idea for idea in context.archive.ideas() if idea.id == id)
