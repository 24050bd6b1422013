"""The judge and the tuner at work: screening for all, precision for the promising."""

from langgraph.runtime import Runtime

from agents.tuner import Tuning
from graphs.context import SearchContext
from graphs.events import CandidateWritten
from graphs.judging import Best, judge, promote, screen, settle
from graphs.nodes.opening import complete
from graphs.state import SearchState, Update
from tools.archive import Standing
from tools.candidates import implementation_key
from tools.nouns import Candidate, Evaluation, Verdict

# Of the time that is left, this share may go into one round's tuning.
TUNING_SHARE = 0.4


async def evaluate(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Judge what was written, the most promising first."""
    context, round = runtime.context, state["round"]
    queue = _in_order(context, state["written"])
    best = Best(state["best"], state["best_ms"])
    judged: list[Evaluation] = []
    if not best.id:
        best, judged = await _first(context, queue, best, round)
        await complete(context)
    judged += await screen(context, queue[len(judged) :], round)
    best = await promote(context, judged, best, round)
    failed = _without_success(context, state, judged)
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
    if not best.id:
        return {}
    tuning = _tuning(context, context.archive.candidate(best.id), round)
    until_s = context.share_of_time_s(TUNING_SHARE)
    screened: list[Evaluation] = []
    while len(screened) < context.profile.tuning_trials:
        batch = _settings_to_try(context, tuning, until_s, len(screened))
        evaluations = await _try(context, batch, round)
        for evaluation in evaluations:
            settings = context.archive.candidate(evaluation.candidate).settings
            tuning.tell(settings, _time(evaluation))
        screened += evaluations
        if not evaluations or len(evaluations) < len(batch):
            break
    best = await promote(context, screened, best, round)
    return {"best": best.id, "best_ms": best.ms}


async def _first(
    context: SearchContext, queue: list[Candidate], best: Best, round: int
) -> tuple[Best, list[Evaluation]]:
    """Until there is a best candidate, screen one at a time; the first correct one is it for now.

    So a person sees a verified figure as early as can be, before torch.compile had its turn, and
    one candidate is judged even when the baselines took all the time there was.
    """
    judged: list[Evaluation] = []
    for candidate in queue:
        if best.id or (judged and context.out_of_time):
            break
        judged.append(await judge(context, candidate, "screen", round))
        best = settle(context, candidate, judged[-1], best, round)
    return best, judged


def _in_order(context: SearchContext, ids: list[str]) -> list[Candidate]:
    """The first candidate of every idea, ideas by predicted time, then the second of each."""
    predicted = {idea.id: idea.predicted_ms or 0.0 for idea in context.archive.ideas()}
    seen: dict[str, int] = {}
    keyed: list[tuple[tuple[int, float, int], Candidate]] = []
    for id in ids:
        candidate = context.archive.candidate(id)
        turn = seen.get(candidate.idea, 0)
        seen[candidate.idea] = turn + 1
        keyed.append(((turn, predicted.get(candidate.idea, 0.0), len(keyed)), candidate))
    return [candidate for _, candidate in sorted(keyed, key=lambda pair: pair[0])]


def _without_success(
    context: SearchContext, state: SearchState, judged: list[Evaluation]
) -> list[str]:
    """For each idea without a correct candidate in this round, the last one that failed."""
    correct = {
        item.candidate.idea
        for item in context.archive.standings()
        if item.round == state["round"] and item.evaluation.verdict is Verdict.CORRECT
    }
    failed: dict[str, str] = {}
    for evaluation in judged:
        idea = context.archive.candidate(evaluation.candidate).idea
        if idea not in correct:
            failed[idea] = evaluation.candidate
    return list(failed.values())


def _tuning(context: SearchContext, candidate: Candidate, round: int) -> Tuning:
    """A tuner that knows every measurement made before this step of this round."""
    key = implementation_key(candidate)
    known = [
        (item.candidate.settings, _time(item.evaluation))
        for item in _screened(context)
        if implementation_key(item.candidate) == key
        and not (item.author == "tuner" and item.round == round)
    ]
    analyses = context.archive.analyses()
    analysis = analyses[-1] if analyses else None
    return Tuning(candidate, known, analysis, seed=context.seed + round)


def _screened(context: SearchContext) -> list[Standing]:
    """Candidates with their screened evaluations, so that times compare like with like."""
    found = []
    for item in context.archive.standings():
        evaluation = context.archive.evaluation(item.candidate.id, "screen")
        if evaluation is not None:
            update = {"evaluation": evaluation, "effort": "screen"}
            found.append(item.model_copy(update=update))
    return found


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
        if known is None and context.searched_s >= until_s:
            break
        batch.append(candidate)
    return batch


async def _try(context: SearchContext, batch: list[Candidate], round: int) -> list[Evaluation]:
    context.archive.record_candidates(batch, round, "tuner")
    for candidate in batch:
        event = CandidateWritten(round=round, candidate=candidate, by="tuner")
        context.emit(event, key=f"written:{candidate.id}")
    return await screen(context, batch, round)


def _time(evaluation: Evaluation) -> float | None:
    return evaluation.median_ms if evaluation.verdict is Verdict.CORRECT else None
