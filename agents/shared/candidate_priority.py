"""Chooses the next candidate: the one that could be fastest, given what was seen of its form.

A prediction is least certain where nobody tried anything like it. Candidates of one form of a task
(as written, by algebra, in another layout) share the library's calls, so that one of them tells
what the others will be, and a second strategy of the same form tells less than a first one of
another. So after the first candidate, whose expected time counts, the others come by their hopeful
times: the expected time with all that differs from the best way known at its best. After two of
them one of a form that nobody tried comes in any case, as a third of the same tells least.

What was seen corrects that. Where a form was slower than expected, its other candidates are taken
to be slower by as much. A form whose result was refused (the library's precision in that layout, an
algebra's rounding) is in doubt until something of it is right, and comes last. Where our own
products rounded their factors, only those of the form that do so as well are in doubt, and its
exact products come next: PyTorch's own is exact there, and slower than predicted. While nothing is
right at all, what is least like what was tried comes first.

Not here: who writes the candidates, and what is repaired.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kernelwright.agents.shared.memo import ByIdentity
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.kernel_library import FORM, ROUNDED_FACTORS
from kernelwright.tools.types import Candidate, Evaluation, Value, Verdict

# How much faster a part may be than predicted. Of our loops the roofline knows the bytes. Of a
# library it knows little: convolutions of 11 files took 0.66 to 1.4 times of what is predicted for
# them on an H200, and one 5.6 times, in the layout for which the prediction was made.
LIBRARY_DOUBT, LOOP_DOUBT = 2.0, 1.25

# Candidates after which a form that nobody tried is due.
ENOUGH = 2

# A result that was refused speaks against what computes it; all else against the kernel alone.
_REFUSED = frozenset({
    Verdict.WRONG_RESULT, Verdict.WRONG_SHAPE, Verdict.NONDETERMINISTIC,
})  # fmt: skip


class Suspect(Value):
    """What a refused result speaks against: a form, "" for none, with factors rounded or not."""

    form: str
    rounded: bool = False


class Prospect(Suspect):
    """What a candidate promises: what it shares with others, and its times in milliseconds."""

    expected_ms: float
    hopeful_ms: float


class Seen(Suspect):
    """What became of a candidate.

    `median_ms` is None for one that was not right, or that counts apart for its precision;
    `refused` says that its result was the reason.
    """

    expected_ms: float
    median_ms: float | None = None
    refused: bool = False


def suspect(candidate: Candidate) -> Suspect:
    """What a candidate would be refused for; no form where its writer named none."""
    return _suspect(candidate.strategies)


@lru_cache(maxsize=4096)
def _suspect(strategies: tuple[str, ...]) -> Suspect:
    """Asked again of the same candidates with every question to a model."""
    form = next((text for text in strategies if text.startswith(f"{FORM}=")), "")
    return _of(form.partition("=")[2], ROUNDED_FACTORS in strategies)


@lru_cache(maxsize=256)
def _of(form: str, rounded: bool) -> Suspect:
    return Suspect(form=form, rounded=rounded)


def prospect(candidate: Candidate, expected_ms: float, hopeful_ms: float) -> Prospect:
    """What a candidate promises."""
    known = suspect(candidate)
    return Prospect(
        form=known.form, rounded=known.rounded, expected_ms=expected_ms, hopeful_ms=hopeful_ms
    )


def seen(standing: Standing, expected_ms: Mapping[str, float]) -> Seen:
    """What an evaluation says of a candidate's form.

    Args:
        standing: The candidate and its evaluation.
        expected_ms: By idea. A repair may have another form than its idea: nothing was expected.
    """
    expected = expected_ms.get(standing.candidate.idea) if standing.author != "repair" else None
    known = _SEEN.of(standing)
    if expected not in known:
        known[expected] = _seen(standing, expected)
    return known[expected]


def _known(standing: Standing) -> dict[float | None, Seen]:
    return {}


# By what was expected of it: a prediction may be made anew.
_SEEN = ByIdentity(_known)


def _seen(standing: Standing, expected: float | None) -> Seen:
    evaluation = standing.evaluation
    right = evaluation.verdict is Verdict.CORRECT and not evaluation.verification.apart
    median_ms = evaluation.median_ms if right else None
    known = suspect(standing.candidate)
    return Seen(
        form=known.form,
        rounded=known.rounded,
        expected_ms=(median_ms or 0.0) if expected is None else expected,
        median_ms=median_ms,
        refused=is_refused(evaluation),
    )


def is_refused(evaluation: Evaluation) -> bool:
    """Whether a candidate ran and its result was the trouble, its precision included."""
    apart = evaluation.verdict is Verdict.CORRECT and bool(evaluation.verification.apart)
    return apart or evaluation.verdict in _REFUSED


def doubted(candidates: Iterable[Seen]) -> frozenset[Suspect]:
    """Forms, with factors rounded or not, of which a result was refused and none was right."""
    return _doubted(_by_kind(candidates))


def _doubted(kinds: Mapping[Suspect, Sequence[Seen]]) -> frozenset[Suspect]:
    return frozenset(
        one
        for one, of in kinds.items()
        if one != Suspect(form="")
        and any(item.refused for item in of)
        and all(item.median_ms is None for item in of)
    )


def _by_kind(found: Iterable[Seen]) -> dict[Suspect, list[Seen]]:
    """What was seen of each form, with factors rounded or not.

    Grouped by plain tuples: hashing a value for each of a thousand candidates takes longer than all
    else that is done with them.
    """
    kinds: dict[tuple[str, bool], list[Seen]] = {}
    for item in found:
        kinds.setdefault((item.form, item.rounded), []).append(item)
    return {_of(*kind): of for kind, of in kinds.items()}


def doubted_in(standings: Sequence[Standing]) -> frozenset[Suspect]:
    """The same of candidates with their evaluations, most of which need not be looked into."""
    refused = [item for item in standings if is_refused(item.evaluation)]
    kinds = {suspect(item.candidate) for item in refused}
    asked = (item for item in standings if suspect(item.candidate) in kinds) if kinds else ()
    return doubted(seen(item, {}) for item in asked)


def like(item: Suspect) -> Suspect:
    """What it shares with others, alone."""
    return _of(item.form, item.rounded)


def in_turn(waiting: Sequence[Prospect], found: Sequence[Seen] = ()) -> list[int]:
    """The places of those that wait, the next to try first.

    Args:
        waiting: In the order of their expected times, or of who pleads for them.
        found: What was seen so far; where nothing was, the first that waits stays the first.
    """
    known = _by_kind(found)
    tried, doubts = {one.form for one in known}, _doubted(known)
    nothing_right = all(item.median_ms is None for item in found)
    slower = {one: _slower_by_ms(of) for one, of in known.items()}
    exact = {Suspect(form=one.form) for one in doubts if one.rounded} - {*known}

    def order(at: int) -> tuple[bool, bool, bool, float]:
        item, one = waiting[at], like(waiting[at])
        again, late_ms = nothing_right and one in known, slower.get(one, 0.0)
        return one in doubts, one not in exact, again, item.hopeful_ms + late_ms

    head = [0] if waiting and not found else []
    turn = [*head, *sorted(range(len(head), len(waiting)), key=order)]
    return _with_one_untried(turn, [item.form for item in waiting], tried, ENOUGH - len(found))


def _with_one_untried(
    turn: list[int], forms: Sequence[str], tried: set[str], before: int
) -> list[int]:
    """The same order, a form that nobody tried being in the place after so many others."""
    at = max(0, before)
    known = tried | {forms[place] for place in turn[:at]}
    fresh = next((place for place in turn[at:] if forms[place] not in known), None)
    if fresh is None:
        return turn
    rest = [place for place in turn if place != fresh]
    return [*rest[:at], fresh, *rest[at:]]


def _slower_by_ms(alike: Sequence[Seen]) -> float:
    """By how much the best of its like was slower than expected; 0 where it was faster."""
    late = [item.median_ms - item.expected_ms for item in alike if item.median_ms]
    return max(0.0, min(late, default=0.0))
