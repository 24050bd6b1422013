"""The ledger: what every idea really brought, renewed after each round.

Tuning may improve an old idea, so every line is looked at again; what was best before an idea
stays as it was when the idea was first judged.
"""

from collections import defaultdict
from collections.abc import Sequence

from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.archive import Standing, is_timed
from kernelwright.tools.types import Idea, LedgerEntry


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
