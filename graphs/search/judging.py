"""Asks the judge: once for every candidate and effort, whatever happens in between.

An evaluation is looked up in the archive before the executor is asked, and recorded before anyone
acts upon it. Which candidates deserve the precise judgement is decided here too.

For a judge far away a session waits for a while and then ends; a client that waits for a person's
answer does its own waiting. Profilers of a device measure within a budget of seconds, each
candidate once. The budget is the search profile's, and is not taken from the seconds that are for
searching. The fastest candidate of a round is measured as long as anything is left, the others only
while more than half is.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kernelwright.graphs.run_view.events import Awaited, BestImproved, CandidateJudged
from kernelwright.graphs.search.context import AHEAD, SearchContext
from kernelwright.graphs.search.options.limits import unless_cut
from kernelwright.tools.archive import ratio
from kernelwright.tools.evaluate import finalists as rules
from kernelwright.tools.evaluate.profiling.local import not_asked
from kernelwright.tools.types import Candidate, Effort, Evaluation, Profile, Verdict
from kernelwright.tools.types.value import AwaitingError

POLL_S = 1.0

Answer = TypeVar("Answer")


async def patiently(context: SearchContext, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until there is an answer, and no longer than the session's patience lasts.

    Raises:
        AwaitingError: When patience ran out.
    """
    give_up = time.monotonic() + context.patience_s
    with context.at_the_judge():
        while True:
            try:
                return await ask()
            except AwaitingError as awaited:
                if time.monotonic() >= give_up:
                    raise
                _tell(context, awaited)
            await asyncio.sleep(POLL_S)


def _tell(context: SearchContext, awaited: AwaitingError) -> None:
    """Say once what is awaited."""
    paths = tuple(str(path) for path in awaited.paths)
    event = Awaited(words=awaited.words, paths=paths)
    context.emit(event, key=f"awaited:{' '.join(paths)}")


OTHERS_SHARE = 0.5


async def measured(
    context: SearchContext, candidate: Candidate, *, foremost: bool, needless: str = ""
) -> Profile:
    """What was measured of a candidate, measured now if it never was; durable either way.

    Args:
        context: of the search.
        candidate: which one.
        foremost: whether it is the fastest of its round.
        needless: why nothing would come of measuring it now; "" where something may.
    """
    known = context.archive.measured(candidate.id)
    if known is not None:
        return known
    budget_s = context.profile.profiling_seconds
    allowed_s = budget_s if foremost else OTHERS_SHARE * budget_s
    if needless:
        profile = not_asked(candidate, needless, "a search with --fresh")
    elif context.archive.profiling_s() < allowed_s:
        with context.at_the_judge():
            profile = await context.executor.profile(context.task, candidate)
    else:
        why = f"the {budget_s:g} seconds for profiling are used up"
        profile = not_asked(candidate, why, "a search profile with more of them")
    context.archive.record_measured(profile)
    context.profiled(profile.seconds)
    return profile


@dataclass
class Best:
    """The best candidate so far; `id` is "" when there is none.

    `ms` is its comparable time, see there.
    """

    id: str = ""
    ms: float | None = None


async def judge(
    context: SearchContext, candidate: Candidate, effort: Effort, round: int
) -> Evaluation:
    """What the judge says of a candidate at that effort, from the archive where it is known."""
    known = context.archive.evaluation(candidate.id, effort)
    if known is None:
        with context.at_the_judge():
            known = await context.executor.evaluate(context.task, candidate, effort)
        context.archive.record_evaluation(known, effort, round)
    event = CandidateJudged(evaluation=known, effort=effort, round=round)
    context.emit(event, key=f"judged:{candidate.id}:{effort}")
    return known


async def judge_in_time(
    context: SearchContext, candidate: Candidate, effort: Effort, round: int
) -> Evaluation | None:
    """The same; None where the limit that a person set ended it, or left no time to begin."""
    if context.archive.evaluation(candidate.id, effort) is not None:
        return await judge(context, candidate, effort, round)
    return await unless_cut(
        context, candidate, effort, lambda: judge(context, candidate, effort, round)
    )


async def screen(
    context: SearchContext,
    candidates: Sequence[Candidate],
    round: int,
    *,
    sure: int = 0,
    until_s: float | None = None,
) -> list[Evaluation]:
    """Screen candidates in order, a few at a time; those behind the end of the budget are left.

    What a person's limit ends is left as well, but for those that are `sure`.

    Args:
        context: of the search.
        candidates: the most promising first.
        round: which one.
        sure: so many of them are screened whatever the time is.
        until_s: when the time for it is over on the run's clock, if before the search's own; those
            left behind may be asked about again in another round.
    """
    again = "" if until_s is None else f"{round}:"
    gate = asyncio.Semaphore(context.width)

    async def one(number: int, candidate: Candidate) -> Evaluation | None:
        async with gate:
            known = context.archive.evaluation(candidate.id, "screen")
            late = known is None and number >= sure
            if late and context.is_out_of_time(f"screen:{again}{candidate.id}", until_s):
                return None
            if known is None and number % AHEAD == 0:
                context.foresee(candidates[number:])
            if number < sure:
                return await judge(context, candidate, "screen", round)
            return await judge_in_time(context, candidate, "screen", round)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*numbered)) for numbered in enumerate(candidates)]
    except* Exception as several:
        raise first_of(several) from None
    judged = (task.result() for task in tasks)
    return [evaluation for evaluation in judged if evaluation is not None]


def first_of(several: BaseExceptionGroup[Exception]) -> Exception:
    """What to raise for a group: something broken is said before somebody is waited for.

    One of a kind is enough, as its siblings were cancelled.
    """
    flat = list(_flat(several))
    return next((error for error in flat if not isinstance(error, AwaitingError)), flat[0])


def _flat(several: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in several.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield error


async def promote(
    context: SearchContext, screened: Iterable[Evaluation], best: Best, round: int
) -> Best:
    """Judge the promising ones precisely, and tell of every improvement."""
    for evaluation in promising(context, screened, best):
        candidate = context.archive.candidate(evaluation.candidate)
        known = context.archive.evaluation(candidate.id, "precise")
        until_s = context.precise_looks_end_s
        late = known is None and bool(best.id)
        if late and context.is_out_of_time(f"precise:{candidate.id}", until_s):
            break
        precise = await judge_in_time(context, candidate, "precise", round)
        if precise is None:
            break
        best = settle(context, candidate, precise, best, round)
    return best


def screened_ms(context: SearchContext, candidate: Candidate) -> float | None:
    """What a candidate took when it was screened; None where it was not, or not timed."""
    screened = context.archive.evaluation(candidate.id, "screen")
    return screened.median_ms if screened is not None else None


def promising(
    context: SearchContext, screened: Iterable[Evaluation], best: Best
) -> list[Evaluation]:
    """The faster half of what the screening saw near or below the best, the fastest first.

    Never more than may become finalists: a precise look costs as much as several candidates.

    Screened times are compared with the best candidate's own screened time: like with like.
    """
    held = context.archive.evaluation(best.id, "screen") if best.id else None
    finalists = context.profile.finalists
    return rules.promising(tuple(screened), held.median_ms if held else None, finalists)


def settle(
    context: SearchContext, candidate: Candidate, judged: Evaluation, best: Best, round: int
) -> Best:
    """The better of the best so far and a candidate that was just judged.

    The best itself, judged more precisely than before, takes the new figure, or gives way.
    """
    median_ms, ms = judged.median_ms, comparable_ms(context, judged)
    may_lead = judged.verdict is Verdict.CORRECT and not judged.verification.apart
    if not may_lead or median_ms is None or ms is None:
        return _next_best(context) if candidate.id == best.id else best
    if candidate.id == best.id:
        return Best(candidate.id, ms)
    if best.ms is not None and ms >= best.ms:
        return best
    eager = context.baselines.named("eager")
    improved = BestImproved(
        round=round,
        candidate=candidate.id,
        idea=candidate.idea,
        median_ms=median_ms,
        best_baseline_ms=context.best_baseline_ms,
        eager_ms=eager.measurement.median_ms if eager and eager.measurement else None,
        floor_ms=context.floor_ms,
    )
    context.emit(improved, key=f"best:{candidate.id}")
    return Best(candidate.id, ms)


def _next_best(context: SearchContext) -> Best:
    standing = context.archive.best()
    if standing is None:
        return Best()
    return Best(standing.candidate.id, comparable_ms(context, standing.evaluation))


def comparable_ms(context: SearchContext, evaluation: Evaluation) -> float | None:
    """A time that compares with those of other minutes.

    Where a candidate was compared with eager pair by pair it is eager's recorded time over that
    ratio, so that a busy minute of the host neither makes nor unmakes a record.
    """
    eager = context.baselines.named("eager")
    against = ratio(evaluation)
    if against is None or eager is None or eager.measurement is None:
        return evaluation.median_ms
    return eager.measurement.median_ms / against
