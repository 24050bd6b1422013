"""When earlier searches say that going on brings nothing, and what this one leaves to later ones.

Every search by rules that ends leaves its trail in the person's library: what each candidate took,
in order. One that stands as they stood goes on where more than a fifth of them became faster by
what counts as a gain, and ends where they did not. Which trails there are is kept with the run, so
that a resume or a replay decides alike. Two things keep the trails honest: one that others ended
tells nothing of what going on brings, and after some such searches one goes its whole way again.

Neither asked nor told: `--fresh` and suites, whose figures must not hang on what ran before; the
turns of a model's regions, which are short; searches in which a model thinks, as rules' trails say
nothing of its ideas; and judges far away, whose trips try what they were sent with. Who lets an
ended search go on wants it to.
"""

import logging
from collections.abc import Sequence

from pydantic import TypeAdapter

from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.remembering import memories_of
from kernelwright.graphs.search.options.rounds import may_end_early
from kernelwright.graphs.search.state import time_of
from kernelwright.tools.archive import Archive
from kernelwright.tools.memory import (
    BROKEN,
    KernelLibrary,
    Trail,
    device_of,
    key_of,
    share_that_gained,
)

log = logging.getLogger(__name__)

_TERM = "experience"
_TRAILS = TypeAdapter(tuple[Trail, ...])
# Fewer say nothing.
_FEWEST = 8
# The share that gained is taken for larger than it was seen, as by one more that did and one that
# did not. What a fifth costs and saves on recorded loops: benchmarks/results/h200/surfaces.md.
_MAY_GAIN = 0.2
# So many searches in a row may be ended by trails before one goes its whole way.
_IN_A_ROW = 4
# A search that was allowed this share of this one's time went as far, or nearly.
_AS_LONG = 0.5
_ASKED, _A_TURN = "experience:", "turn"


def keep_turn(archive: Archive) -> None:
    """Say that a new run is a turn of a region, which leaves no trail and asks for none."""
    archive.record_term(_A_TURN, "true")


def keep_experience(archive: Archive) -> None:
    """Keep with a new run how earlier ones of its depth went on its device, those like it first."""
    record = archive.record()
    key, library = key_of(record.task), KernelLibrary(archive.folder.parent.parent)
    if key is None:
        return
    try:
        found = library.trails(device_of(record.hardware), record.profile.name)
    except BROKEN as error:
        log.warning("how earlier searches went cannot be read: %s", error)
        return
    found = tuple(item for item in found if item.seconds >= _AS_LONG * record.profile.seconds)
    latest = found[:_IN_A_ROW]
    if len(latest) == _IN_A_ROW and not any(trail.whole for trail in latest):
        return
    same = tuple(trail for trail in found if trail.structure == key.structure)
    chosen = same if sum(trail.whole for trail in same) >= _FEWEST else found
    if sum(trail.whole for trail in chosen) >= _FEWEST:
        archive.record_term(_TERM, _TRAILS.dump_json(chosen).decode())


def enough(context: SearchContext, round: int, at: str) -> str:
    """Why going on would bring nothing, by how other searches went.

    "" where it may, where nobody knows, and in rounds that were promised. Decided once for a round
    and a place in it: a step that is taken again comes by the same places.

    Args:
        context: Of the search.
        round: Which one it is in.
        at: The place in the round.
    """
    kept = context.archive.term(_TERM)
    if kept is None or not may_end_early(context, round):
        return ""
    return context.decide(
        f"{_ASKED}{round}:{at}", lambda: _said(context, _TRAILS.validate_json(kept))
    )


def suffices(
    trails: Sequence[Trail], times_ms: Sequence[float | None], gain: float
) -> tuple[int, int] | None:
    """How many gained and of how many, where that says that a search may end; None elsewhere.

    Args:
        trails: Of other searches.
        times_ms: What this one was told so far.
        gain: The time before over the time after that counts, such as 1.02.
    """
    if all(ms is None for ms in times_ms):
        return None
    gained, of = share_that_gained(trails, times_ms, gain)
    return None if of < _FEWEST or (gained + 1) / (of + 2) > _MAY_GAIN else (gained, of)


def _said(context: SearchContext, trails: tuple[Trail, ...]) -> str:
    gain = context.profile.minimum_gain
    found = suffices(trails, _times_ms(context.archive), gain)
    if found is None:
        return ""
    gained, of = found
    return (
        f"{of - gained} of {of} earlier searches that stood like this one gained less than "
        f"{gain - 1.0:.0%} by going on"
    )


def _times_ms(archive: Archive) -> tuple[float | None, ...]:
    return tuple(time_of(evaluation) for evaluation in archive.screenings())


def leave_trail(context: SearchContext) -> None:
    """Keep how a search that ended went; one that began with its own result tells nothing."""
    archive, key = context.archive, key_of(context.task)
    begun, times_ms = memories_of(archive), _times_ms(archive)
    if key is None or begun.items or begun.fresh or context.laps or archive.term(_A_TURN):
        return
    if context.agents.strategist or context.executor.capabilities.remote:
        return
    if all(ms is None for ms in times_ms):  # which says more of the machine than of searching
        return
    by_others = any(name.startswith(_ASKED) and said for name, said in archive.decisions())
    trail = Trail(
        device=device_of(context.hardware),
        depth=context.profile.name,
        structure=key.structure,
        times_ms=times_ms,
        seconds=context.profile.seconds,
        whole=not by_others,
    )
    try:
        KernelLibrary(context.home).keep_trail(trail)
    except BROKEN as error:
        log.warning("how this search went cannot be kept: %s", error)
