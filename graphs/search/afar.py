"""The judge at work when it is far away: one trip for a round, one for the certification.

What a compiler refuses is repaired before the trip, as that is seen here; what was wrong on the
far host is repaired along with the next round's writing, as another trip would be dear.
"""

import asyncio

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.graphs.run_view.events import CandidateWritten
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import Best, judge, promote, screened_ms
from kernelwright.graphs.search.queue import in_order, tuning_of, without_success
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.graphs.search.trips import round_errand
from kernelwright.graphs.search.waiting import patiently
from kernelwright.tools.evaluate.executors.base.errand import Errand
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import UNBUILT, Candidate


async def evaluate_afar(state: SearchState, context: SearchContext, far: Executor) -> Update:
    """Judge all of a round in one trip, unless repairs can be had before it."""
    round, best = state["round"], Best(state["best"], state["best_ms"])
    queue = _of_this_round(context, round)
    refused = await _refused(context, far, queue, round)
    hopeless = _hopeless(queue, refused)
    update: Update = {"written": None, "attempt": state["attempt"] + 1, "failed": []}
    may_repair = hopeless and state["attempt"] < context.profile.repairs
    if may_repair and not context.is_out_of_time(f"repairs:{round}:{state['attempt']}"):
        return {**update, "failed": hopeless}
    tuned = await _trip(context, far, [item for item in queue if item.id not in refused], state)
    judged = [await judge(context, item, "screen", round) for item in (*queue, *tuned)]
    # What was measured is kept, even where no time would be left to ask for it now.
    for item in (*queue, *tuned):
        if far.known(item.id, "precise") is not None:
            await judge(context, item, "precise", round)
    best = await promote(context, judged, best, round)
    owed = _owed(context, without_success(context, state, judged), refused)
    return {**update, "owed": owed, "best": best.id, "best_ms": best.ms}


async def certify_afar(
    context: SearchContext, far: Executor, finalists: list[Candidate], rivals: int
) -> None:
    """Have finalists certified in one trip; the far host ends where the search would."""
    known = (
        context.archive.evaluation(item.id, "certify") or far.known(item.id, "certify")
        for item in finalists
    )
    if finalists and not any(known):
        taken_ms = tuple(screened_ms(context, item) for item in finalists)
        errand = Errand(certify=tuple(finalists), screened_ms=taken_ms, rivals=rivals)
        await patiently(context, lambda: far.fetch(context.task, errand))


def _of_this_round(context: SearchContext, round: int) -> list[Candidate]:
    written = context.archive.candidates(round)
    return in_order(context, [item.candidate.id for item in written if item.author != "tuner"])


async def _refused(
    context: SearchContext, far: Executor, queue: list[Candidate], round: int
) -> set[str]:
    """Candidates that cannot be built; what the compiler said of them is kept."""
    fresh = [item for item in queue if context.archive.evaluation(item.id, "screen") is None]
    checked = await asyncio.gather(*(far.check(item) for item in fresh))
    for candidate, failure in zip(fresh, checked, strict=True):
        if failure is not None:
            await judge(context, candidate, "screen", round)
    return {
        item.id
        for item in queue
        if (known := context.archive.evaluation(item.id, "screen")) is not None
        and known.verification.isolation == UNBUILT
    }


def _hopeless(queue: list[Candidate], refused: set[str]) -> list[str]:
    """For each idea of which nothing could be built, the last candidate that failed."""
    built = {item.idea for item in queue if item.id not in refused}
    return list({item.idea: item.id for item in queue if item.idea not in built}.values())


async def _trip(
    context: SearchContext, far: Executor, queue: list[Candidate], state: SearchState
) -> list[Candidate]:
    """Send the round out; settings that were tried there are candidates of the tuner's now."""
    best = context.archive.candidate(state["best"]) if state["best"] else None
    tuning: Tuning | None = tuning_of(context, best, state["round"]) if best else None
    if not queue and tuning is None:
        return []
    errand = round_errand(context, queue, best, tuning, state["round"])
    if not errand.screen:
        return []
    await patiently(context, lambda: far.fetch(context.task, errand))
    mine = {item.id for item in queue}
    extra = {item.id: item for item in errand.candidates() if item.id not in mine}
    tried = [item for item in extra.values() if far.known(item.id, "screen") is not None]
    context.archive.record_candidates(tried, state["round"], "tuner")
    for candidate in tried:
        event = CandidateWritten(round=state["round"], candidate=candidate, by="tuner")
        context.emit(event, key=f"written:{candidate.id}")
    return tried


def _owed(context: SearchContext, failed: list[str], refused: set[str]) -> list[str]:
    """Failures to repair in the next round; an idea has no more repairs than it ever had."""
    repairs: dict[str, int] = {}
    for item in context.archive.candidates():
        if item.author == "repair":
            repairs[item.candidate.idea] = repairs.get(item.candidate.idea, 0) + 1
    most = context.profile.repairs
    ideas = {id: context.archive.candidate(id).idea for id in failed if id not in refused}
    return [id for id, idea in ideas.items() if repairs.get(idea, 0) < most]
