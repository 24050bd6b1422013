"""What to ask of a judge far away, so that a round takes one trip.

Candidates of the round go out with other settings of theirs and of the best one so far; the
far host tunes the fastest of them and looks closely at what is promising, by the same rules.
"""

from collections.abc import Sequence

from agents.coder import spread
from agents.tuner import Tuning
from graphs.context import SearchContext
from tools.candidates import ContractError, parse_kernel, valid_settings, with_settings
from tools.evaluate.errand import Errand, Variants
from tools.nouns import Candidate

# Of a round's candidates, so many are tuned on the far host, with so many settings in all at
# most: every one costs seconds of a device that somebody else waits for.
TUNED = 2
SETTINGS = 16


def round_errand(
    context: SearchContext,
    queue: Sequence[Candidate],
    best: Candidate | None,
    tuning: Tuning | None,
    round: int,
) -> Errand:
    """Screen the queue, tune the fastest of it and the best so far, compare the promising.

    Args:
        context: Of the search.
        queue: Candidates that can be compiled, the most promising first.
        best: The best candidate so far.
        tuning: A tuner of the best candidate, which knows what was measured before this round.
        round: Which round it is.
    """
    wanted = min(context.profile.tuning_trials, SETTINGS)
    share = wanted // (TUNED + (tuning is not None))
    more = [candidate for _ in range(share) if tuning and (candidate := tuning.ask())]
    held = context.archive.evaluation(best.id, "screen") if best else None
    groups = [
        Variants(of=item.id, candidates=_others(context, item, share, round)) for item in queue
    ]
    return Errand(
        screen=(*queue, *more),
        variants=tuple(group for group in groups if group.candidates),
        tuned=TUNED,
        finalists=context.profile.finalists,
        to_beat_ms=held.median_ms if held else None,
    )


def _others(
    context: SearchContext, candidate: Candidate, count: int, round: int
) -> tuple[Candidate, ...]:
    """Settings of a candidate that are far apart and that nobody tried before this round."""
    try:
        source = parse_kernel(candidate.kernel, candidate.language)
    except ContractError:
        return ()
    used = {
        item.candidate.settings
        for item in context.archive.candidates()
        if item.candidate.kernel == candidate.kernel
        and not (item.author == "tuner" and item.round == round)
    }
    chosen = spread(valid_settings(source), count, used, seed=context.seed)
    made = (with_settings(candidate, settings, note="tuned settings") for settings in chosen)
    return tuple(item.model_copy(update={"parents": (candidate.id,)}) for item in made)
