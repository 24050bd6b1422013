"""Which right candidates go back to their writers, because something holds them back.

A model's kernel that is near the best, or promised to be, and spills, is serialised or misses its
prediction, is worked on again with the reason: once, the most promising few of a round, and within
the attempts that failures have. Runs from before there were second chances have none.
"""

from collections.abc import Sequence

from kernelwright.agents.toolbox.flaws import flaws, is_promising
from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Candidate, Evaluation

_TERM = "second chances"
# Of one round; each costs a question and a judgement.
_MOST = 2


def keep_second_chances(archive: Archive) -> None:
    """Let right candidates of a new run have them."""
    archive.record_term(_TERM, str(_MOST))


def second_chances(
    context: SearchContext, judged: Sequence[Evaluation], best_ms: float | None
) -> list[str]:
    """Candidates to work on again, the fastest first, one an idea.

    Args:
        context: of the search.
        judged: what was judged just now.
        best_ms: the best candidate's time.
    """
    if context.archive.term(_TERM) is None:
        return []
    predicted = {idea.id: idea.predicted_ms for idea in context.archive.ideas()}
    found: dict[str, Evaluation] = {}
    for evaluation in sorted(judged, key=lambda item: item.median_ms or 0.0):
        candidate = context.archive.candidate(evaluation.candidate)
        expected = predicted.get(candidate.idea)
        if (
            candidate.origin == "model"
            and flaws(evaluation, expected)
            and is_promising(evaluation, best_ms, expected)
            and not _is_a_second(context, candidate)
        ):
            found.setdefault(candidate.idea, evaluation)
    return [evaluation.candidate for evaluation in found.values()][:_MOST]


def reasons(context: SearchContext, candidate: Candidate, evaluation: Evaluation) -> str:
    """Why a right candidate is worked on again, in sentences; "" for one that failed."""
    ideas = {idea.id: idea.predicted_ms for idea in context.archive.ideas()}
    return "; ".join(flaws(evaluation, ideas.get(candidate.idea)))


def _is_a_second(context: SearchContext, candidate: Candidate) -> bool:
    """Whether it was written as another try of one that was right already."""
    known = (context.archive.evaluation(parent) for parent in candidate.parents)
    written = {item.candidate.id: item.author for item in context.archive.candidates()}
    by_repair = written.get(candidate.id) == "repair"
    return by_repair and any(item is not None and bool(item.median_ms) for item in known)
