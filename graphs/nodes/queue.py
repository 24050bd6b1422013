"""Which candidates wait for the judge, in which order, and what their tuner knows."""

from agents.tuner import Tuning
from graphs.context import SearchContext
from graphs.state import SearchState
from tools.archive import Standing
from tools.candidates import implementation_key
from tools.nouns import Candidate, Evaluation, Verdict


def in_order(context: SearchContext, ids: list[str]) -> list[Candidate]:
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


def without_success(
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


def tuning_of(context: SearchContext, candidate: Candidate, round: int) -> Tuning:
    """A tuner that knows every measurement made before this step of this round."""
    key = implementation_key(candidate)
    known = [
        (item.candidate.settings, time_of(item.evaluation))
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


def time_of(evaluation: Evaluation) -> float | None:
    """What a tuner is told: a time, or None for what did not run."""
    return evaluation.median_ms if evaluation.verdict is Verdict.CORRECT else None
