"""When a search may end because it stands where one of a near task ended.

A library holds what the search of a near task found: the same operators on sizes within a factor of
two, this device. This one begins with that kernel's strategies and settings, beside its own first
ideas. Where the fastest of them reaches the share of its floor that was reached there, within what
sizes and short timings make of it, the settings next to it have one try, and the search ends: the
other one went on from there and found nothing better.

What a search that ended so leaves in the library ends no other.
"""

from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.remembering import memories_of
from kernelwright.graphs.search.options.rounds import may_end_early
from kernelwright.tools.archive import Archive

_ASKED = "near:"
# What is reached of a floor may be so much less or more than on other sizes: launches weigh more on
# small ones, caches hold more of them. Beyond it something else bounds the loop here. Of 18 pairs
# that were searched apart it lay between 0.88 and 1.09 (benchmarks/results/h200/earlier_runs.md).
_LEAST, _MOST = 0.9, 1.15


def ends_as_near(context: SearchContext, best: str, round: int) -> str:
    """Why this round's best need not be improved on, by a near task; "" where that is not known.

    Decided once for a round, before its settings are tried.

    Args:
        context: Of the search.
        best: Id of the fastest candidate so far; "" for none.
        round: Which one it is in.
    """
    if not best or not may_end_early(context, round):
        return ""
    return context.decide(f"{_ASKED}{round}", lambda: _said(context, best))


def ended_as_near(archive: Archive) -> bool:
    """Whether a near task's result ended that search."""
    return any(name.startswith(_ASKED) and said for name, said in archive.decisions())


def _said(context: SearchContext, best: str) -> str:
    screened = context.archive.evaluation(best, "screen")
    known_share = memories_of(context.archive).near_share
    if not known_share or screened is None or not screened.median_ms:
        return ""
    share = context.floor_ms / screened.median_ms
    if not _LEAST <= share / known_share <= _MOST:
        return ""
    return (
        f"the best candidate reaches {share:.0%} of the floor, where an earlier search of the same "
        f"operators on sizes near these came to {known_share:.0%}"
    )
