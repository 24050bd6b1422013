"""The judge and the tuner at work: screening for all, precision for the promising."""

from langgraph.runtime import Runtime

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.graphs.run_view.events import CandidateWritten
from kernelwright.graphs.search.afar import evaluate_afar
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import Best, judge, promote, screen, settle
from kernelwright.graphs.search.opening import complete
from kernelwright.graphs.search.queue import in_order, time_of, tuning_of, without_success
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.tools.types import Candidate, Evaluation

# Of the time that is left, this share may go into one round's tuning.
TUNING_SHARE = 0.4
# Screened beside the first one in any case where several are in flight: on tasks of gigabytes the
# first takes all the time of a short search, and a choice of one is none.
_SURE = 1


async def evaluate(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Judge what was written, the most promising first."""
    context, round = runtime.context, state["round"]
    if context.executor.capabilities.remote:
        return await evaluate_afar(state, context, context.executor)
    best = Best(state["best"], state["best_ms"])
    judged: list[Evaluation] = []
    sure, opening = 0, not best.id
    if opening:
        _foresee(context, state["written"])
        best, judged = await _first(context, state["written"], best, round)
        sure = _SURE if context.width > 1 else 0
    left = in_order(context, state["written"], [item.candidate for item in judged])
    judged += await screen(context, left, round, sure=sure)
    if opening:
        # A screening needs eager alone; torch.compile may still be at work beside it.
        await complete(context)
    best = await promote(context, judged, best, round)
    failed = without_success(context, state, judged)
    return {
        "written": None,
        "attempt": state["attempt"] + 1,
        "failed": failed,
        "best": best.id,
        "best_ms": best.ms,
    }


async def tune(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Explore the tunables of the best candidate, or of the best of this round."""
    context, round = runtime.context, state["round"]
    best = Best(state["best"], state["best_ms"])
    if not best.id or context.executor.capabilities.remote:
        return {}  # one trip of `evaluate` tunes as well
    tuning = tuning_of(context, context.archive.candidate(best.id), round)
    until_s = context.share_of_time_s(TUNING_SHARE)
    screened: list[Evaluation] = []
    while len(screened) < context.profile.tuning_trials:
        batch = _settings_to_try(context, tuning, until_s, len(screened))
        evaluations = await _try(context, batch, round)
        for evaluation in evaluations:
            settings = context.archive.candidate(evaluation.candidate).settings
            tuning.tell(settings, time_of(evaluation))
        screened += evaluations
        if not evaluations or len(evaluations) < len(batch):
            break
    best = await promote(context, screened, best, round)
    return {"best": best.id, "best_ms": best.ms}


def _foresee(context: SearchContext, ids: list[str]) -> None:
    """Let those behind the first be compiled with it, where several may be in flight."""
    if context.executor.capabilities.foresees and context.width > 1:
        context.executor.foresee(in_order(context, ids)[: context.width])


async def _first(
    context: SearchContext, ids: list[str], best: Best, round: int
) -> tuple[Best, list[Evaluation]]:
    """Until there is a best candidate, screen one at a time; the first correct one is it for now.

    So a person sees a verified figure as early as can be, before torch.compile had its turn, and
    one candidate is judged even when the baselines took all the time there was. Each one that was
    refused tells which is the next.
    """
    judged: list[Evaluation] = []
    while not best.id:
        left = in_order(context, ids, [item.candidate for item in judged])
        if not left or (judged and _is_too_late(context, left[0])):
            break
        judged.append(await judge(context, left[0], "screen", round))
        best = settle(context, left[0], judged[-1], best, round)
    return best, judged


def _is_too_late(context: SearchContext, candidate: Candidate) -> bool:
    known = context.archive.evaluation(candidate.id, "screen")
    return known is None and context.is_out_of_time(f"first:{candidate.id}")


def _settings_to_try(
    context: SearchContext, tuning: Tuning, until_s: float, tried: int
) -> list[Candidate]:
    """As many as may be in flight; what an earlier session measured costs no time of this one."""
    batch: list[Candidate] = []
    for _ in range(min(context.width, context.profile.tuning_trials - tried)):
        candidate = tuning.ask()
        if candidate is None:
            break
        known = context.archive.evaluation(candidate.id, "screen")
        if known is None and context.is_out_of_time(f"tuned:{candidate.id}", until_s):
            break
        batch.append(candidate)
    return batch


async def _try(context: SearchContext, batch: list[Candidate], round: int) -> list[Evaluation]:
    context.archive.record_candidates(batch, round, "tuner")
    for candidate in batch:
        event = CandidateWritten(round=round, candidate=candidate, by="tuner")
        context.emit(event, key=f"written:{candidate.id}")
    return await screen(context, batch, round)
