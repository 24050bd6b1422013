"""Moves between behaviours: from which cell a candidate set out, where it arrived, what it brought.

A candidate sets out from its nearest ancestor of another idea, so a repair or a tuned setting
belongs to the move that its idea began. Not here: moves of candidates written from nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from kernelwright.tools.archive.behaviour import Behaviour, behaviour
from kernelwright.tools.archive.ranking import is_timed, ratio
from kernelwright.tools.archive.records import Standing
from kernelwright.tools.types import Evaluation, Value


class Transition(Value):
    """What one idea's way from one ancestor came to, by its fastest candidate.

    `gain` is the ancestor's time over the candidate's, above 1 for a gain; None when no candidate
    was correct. `tried` and `correct` count the idea's candidates from that ancestor.
    """

    before: Behaviour
    after: Behaviour
    source: str
    candidate: str
    idea: str
    round: int
    tried: int
    correct: int
    gain: float | None = None


def transitions(standings: Sequence[Standing]) -> tuple[Transition, ...]:
    """Every move of a search, in the order in which the ideas were first judged."""
    known = {item.candidate.id: item for item in standings}
    grouped: dict[tuple[str, str], list[Standing]] = {}
    for item in standings:
        source = origin(item, known)
        if source is not None:
            grouped.setdefault((item.candidate.idea, source.candidate.id), []).append(item)
    return tuple(_transition(known[source], of) for (_, source), of in grouped.items())


def origin(item: Standing, known: Mapping[str, Standing]) -> Standing | None:
    """The nearest correct ancestor of another idea; None when a candidate began from nothing."""
    seen = {item.candidate.id}
    at = _parent(item, known)
    while at is not None and at.candidate.id not in seen:
        if at.candidate.idea != item.candidate.idea and is_timed(at.evaluation):
            return at
        seen.add(at.candidate.id)
        at = _parent(at, known)
    return None


def gain(before: Evaluation, after: Evaluation) -> float | None:
    """How many times as fast the second is, like compared with like; None where one has no time.

    Pair by pair with eager where both were compared so, else by screened times where both have
    them, else by whatever times there are.
    """
    first, second = ratio(before), ratio(after)
    if first is not None and second is not None:
        return second / first
    if before.screen and after.screen:
        return before.screen.median_ms / after.screen.median_ms
    if before.median_ms is None or after.median_ms is None:
        return None
    return before.median_ms / after.median_ms


def improvements(standings: Iterable[Standing]) -> dict[str, float]:
    """By id, how many times as fast each correct candidate is as the one it set out from."""
    known = {item.candidate.id: item for item in standings}
    found = {}
    for id, item in known.items():
        source = origin(item, known) if is_timed(item.evaluation) else None
        brought = gain(source.evaluation, item.evaluation) if source else None
        if brought is not None:
            found[id] = brought
    return found


def _parent(item: Standing, known: Mapping[str, Standing]) -> Standing | None:
    return next((known[id] for id in item.candidate.parents if id in known), None)


def _transition(source: Standing, of: Sequence[Standing]) -> Transition:
    gains = [
        (brought, item)
        for item in of
        if is_timed(item.evaluation)
        and (brought := gain(source.evaluation, item.evaluation)) is not None
    ]
    brought, reached = max(gains, key=lambda pair: pair[0]) if gains else (None, of[-1])
    return Transition(
        before=behaviour(source.candidate, source.evaluation),
        after=behaviour(reached.candidate, reached.evaluation),
        source=source.candidate.id,
        candidate=reached.candidate.id,
        idea=reached.candidate.idea,
        round=of[0].round,
        tried=len(of),
        correct=len(gains),
        gain=brought,
    )
