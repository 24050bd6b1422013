"""Nodes for a judge that is far away: one trip for a round, one for the certification.

Candidates of the round go out with other settings of theirs and of the best one so far; the
far host tunes the fastest of them and looks closely at what is promising, by the same rules,
and asks its profilers about the fastest: counters come home with the times.
What a compiler refuses is repaired before the trip, as that is seen here; what was wrong on the
far host is repaired along with the next round's writing, as another trip would be dear.
"""

import asyncio
from collections.abc import Sequence

from kernelwright.agents.coder.coder import spread
from kernelwright.agents.coder.tuner import Tuning
from kernelwright.graphs.run_view.events import CandidateWritten
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import Best, judge, patiently, promote, screened_ms
from kernelwright.graphs.search.state import (
    SearchState,
    Update,
    in_order,
    tuning_of,
    without_success,
)
from kernelwright.tools.candidates import ContractError, valid_settings
from kernelwright.tools.evaluate.executors.base.executor import BatchRequest, Executor, Variants
from kernelwright.tools.languages import parse_kernel, with_settings
from kernelwright.tools.types import UNBUILT, Candidate, Setting

Settings = tuple[Setting, ...]

# Of a round's candidates, so many are tuned on the far host, with so many settings in all at
# most: every one costs seconds of a device that somebody else waits for.
TUNED = 2
SETTINGS = 16
# Of what a trip judged, the fastest are looked at by profilers there, within the profile's seconds.
PROFILED = 3


def round_request(
    context: SearchContext,
    queue: Sequence[Candidate],
    best: Candidate | None,
    tuning: Tuning | None,
    round: int,
) -> BatchRequest:
    """Screen the queue, tune the fastest of it and the best so far, compare the promising.

    Args:
        context: Of the search.
        queue: Candidates that can be compiled, the most promising first.
        best: The best candidate so far.
        tuning: A tuner of the best candidate, which knows what was measured before this round.
        round: Which round it is.
    """
    wanted = min(context.profile.tuning_trials, SETTINGS)
    share = wanted // (TUNED + (tuning is not None))
    asked = [candidate for _ in range(share) if tuning and (candidate := tuning.ask())]
    here = {item.id for item in queue}
    more = [item for item in asked if item.id not in here]
    held = context.archive.evaluation(best.id, "screen") if best else None
    return BatchRequest(
        screen=(*queue, *more),
        variants=_variants(context, queue, more, share, round),
        tuned=TUNED,
        finalists=context.profile.finalists,
        to_beat_ms=held.median_ms if held else None,
        profiled=PROFILED if context.profile.profiling_seconds > 0 else 0,
        profiling_s=context.profile.profiling_seconds,
    )


def _variants(
    context: SearchContext,
    queue: Sequence[Candidate],
    more: Sequence[Candidate],
    count: int,
    round: int,
) -> tuple[Variants, ...]:
    """Other settings for each, that are far apart and that nobody tried before this round.

    Candidates that differ in settings only get different ones.
    """
    used: dict[str, set[Settings]] = {}
    for item in context.archive.candidates():
        if not (item.author == "tuner" and item.round == round):
            used.setdefault(item.candidate.kernel, set()).add(item.candidate.settings)
    for tuned in more:
        used[tuned.kernel].add(tuned.settings)
    groups = []
    for candidate in queue:
        chosen = _far_apart(candidate, count, used[candidate.kernel], context.seed)
        used[candidate.kernel].update(chosen)
        made = (with_settings(candidate, settings, note="tuned settings") for settings in chosen)
        parents = {"parents": (candidate.id,)}
        others = tuple(item.model_copy(update=parents) for item in made)
        groups.append(Variants(of=candidate.id, candidates=others))
    return tuple(group for group in groups if group.candidates)


def _far_apart(
    candidate: Candidate, count: int, used: set[Settings], seed: int
) -> Sequence[Settings]:
    try:
        source = parse_kernel(candidate.kernel, candidate.language)
    except ContractError:
        return ()
    return spread(valid_settings(source), count, used, seed=seed)


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
        request = BatchRequest(certify=tuple(finalists), screened_ms=taken_ms, rivals=rivals)
        await patiently(context, lambda: far.fetch(context.task, request))


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
    request = round_request(context, queue, best, tuning, state["round"])
    if not request.screen:
        return []
    await patiently(context, lambda: far.fetch(context.task, request))
    mine = {item.id for item in queue}
    extra = {item.id: item for item in request.candidates() if item.id not in mine}
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
