"""How large a round is, how much of the time it may take, and when giving up needs a proof.

A profile may promise a number of rounds. Then a round takes no more than its share of the time, and
what it could not screen in that waits for the next one; nothing ends the search before them but the
floor, a budget, or a plateau that is proven: nothing new could be written or tuned, by rules that
would have found it.

A round may be sized by what is known. The first is as wide as the profile says. Later ones hold as
many ideas as predictions have been wrong: where times came out as expected the most promising idea
is known beforehand, and the places of the others go to settings. Where ideas could not be written
right, or nothing was measured, a round stays wide.
"""

import json
from collections.abc import Sequence
from math import ceil, log
from statistics import median

from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.types import LedgerEntry

# Of a round's share of the time, so much may go into screening what was written for it.
_SCREENING_SHARE = 0.6
# Predictions that are off by this factor either way, in the middle, say nothing about the order.
_SAYS_NOTHING = log(1.5)
# Two ideas at least, so that a round can tell one from the other.
_FEWEST = 2

A_PLATEAU = "a plateau: nothing new was left to write or to tune"


def ideas_wanted(most: int, ledger: Sequence[LedgerEntry]) -> int:
    """How many ideas the next round should hold.

    Args:
        most: What the profile allows; the answer before anything was measured.
        ledger: What ideas came to so far.
    """
    tried = [entry for entry in ledger if entry.candidates]
    wrong = _unforeseen(tried)
    if wrong is None:
        return most
    failed = sum(not entry.correct for entry in tried) / len(tried)
    return min(most, max(_FEWEST, ceil(most * min(1.0, max(wrong / _SAYS_NOTHING, failed)))))


def _unforeseen(tried: Sequence[LedgerEntry]) -> float | None:
    """How far times lay from their predictions, as a logarithm; None where that is not known.

    What all of them were off by is learnt by the planner and tells ideas apart no worse.
    """
    ratios = [
        log(entry.measured_ms / entry.predicted_ms)
        for entry in tried
        if entry.measured_ms and entry.predicted_ms
    ]
    if len(ratios) < _FEWEST:
        return None
    middle = median(ratios)
    return median(abs(ratio - middle) for ratio in ratios)


def wanted_in(context: SearchContext, round: int) -> int:
    """How many ideas a round of this search holds."""
    most = context.profile.ideas_per_round
    if round == 1 or context.profile.round_size == "fixed":
        return most
    return ideas_wanted(most, context.archive.ledger())


def trials_in(context: SearchContext, round: int) -> int:
    """How many settings a round may try: places that ideas do not need go to them."""
    profile = context.profile
    if not profile.tuning_trials or round == 1 or profile.round_size == "fixed":
        return profile.tuning_trials
    known = [entry for entry in context.archive.ledger() if entry.round < round]
    free = profile.ideas_per_round - ideas_wanted(profile.ideas_per_round, known)
    return profile.tuning_trials + free * profile.candidates_per_idea


def rounds_to_come(context: SearchContext, round: int) -> int:
    """How many rounds were promised and are not over, this one included; at least this one."""
    return max(1, min(context.profile.minimum_rounds, context.profile.rounds) - round + 1)


def screening_ends_s(context: SearchContext, round: int) -> float | None:
    """When a round's screening is over on the run's clock; None where no round has to follow."""
    left = rounds_to_come(context, round)
    if left == 1:
        return None
    share = _SCREENING_SHARE / left
    return float(context.decide(f"share:{round}", lambda: repr(context.share_of_time_s(share))))


def put_off(context: SearchContext, round: int) -> list[str]:
    """Ids of candidates of earlier rounds for which these had no time; decided once."""
    if context.profile.minimum_rounds == 1:
        return []
    kept = context.decide(f"put off:{round}", lambda: json.dumps(_unjudged(context, round)))
    ids: list[str] = json.loads(kept)
    return ids


def _unjudged(context: SearchContext, round: int) -> list[str]:
    archive = context.archive
    return [
        item.candidate.id
        for item in archive.candidates()
        if item.round < round
        and item.author != "tuner"
        and archive.evaluation(item.candidate.id) is None
    ]


def may_end_early(context: SearchContext, round: int) -> bool:
    """Whether what earlier searches came to may end this one in a round.

    Not in rounds that were promised, nor where a model thinks, of whose ideas they say nothing, nor
    where a judge is far away, nor where somebody let a search that ended go on.
    """
    promised = round < context.profile.minimum_rounds or bool(context.laps)
    far = context.executor.capabilities.remote
    return not (promised or far or context.agents.strategist)


def gives_up(context: SearchContext, round: int, stale_rounds: int, settled: bool) -> str:
    """Why a search that does not improve ends after this round; "" where it goes on.

    What an earlier search had `settled` is a plateau that is proven.
    """
    if round < context.profile.minimum_rounds and not settled:
        return A_PLATEAU if stale_rounds and _brought_nothing_new(context, round) else ""
    if stale_rounds < (1 if settled else context.profile.patience):
        return ""
    return f"nothing improved for {stale_rounds} round{'s' if stale_rounds > 1 else ''}"


def _brought_nothing_new(context: SearchContext, round: int) -> bool:
    """Whether rules found nothing to write and no setting to try; a model may think of more."""
    archive = context.archive
    by_rules = context.agents.strategist is None
    waits = context.executor.capabilities.remote or _unjudged(context, round + 1)
    return by_rules and not waits and not archive.candidates(round)
