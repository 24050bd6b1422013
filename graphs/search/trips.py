"""What to ask of a judge far away, so that a round takes one trip.

Candidates of the round go out with other settings of theirs and of the best one so far; the
far host tunes the fastest of them and looks closely at what is promising, by the same rules.
"""

from collections.abc import Sequence

from kernelwright.agents.coder.playbook import spread
from kernelwright.agents.coder.tuner import Tuning
from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.candidates import ContractError, valid_settings
from kernelwright.tools.evaluate.executors.base.errand import Errand, Variants
from kernelwright.tools.languages import parse_kernel, with_settings
from kernelwright.tools.types import Candidate, Setting

Settings = tuple[Setting, ...]

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
    asked = [candidate for _ in range(share) if tuning and (candidate := tuning.ask())]
    here = {item.id for item in queue}
    more = [item for item in asked if item.id not in here]
    held = context.archive.evaluation(best.id, "screen") if best else None
    return Errand(
        screen=(*queue, *more),
        variants=_variants(context, queue, more, share, round),
        tuned=TUNED,
        finalists=context.profile.finalists,
        to_beat_ms=held.median_ms if held else None,
    )


def _variants(
    context: SearchContext,
    queue: Sequence[Candidate],
    more: Sequence[Candidate],
    count: int,
    round: int,
) -> tuple[Variants, ...]:
    """Other settings for each, that are far apart and that nobody tried before this round.

    Candidates that differ in settings only get different ones.
    """
    used: dict[str, set[Settings]] = {}
    for item in context.archive.candidates():
        if not (item.author == "tuner" and item.round == round):
            used.setdefault(item.candidate.kernel, set()).add(item.candidate.settings)
    for tuned in more:
        used[tuned.kernel].add(tuned.settings)
    groups = []
    for candidate in queue:
        chosen = _far_apart(candidate, count, used[candidate.kernel], context.seed)
        used[candidate.kernel].update(chosen)
        made = (with_settings(candidate, settings, note="tuned settings") for settings in chosen)
        parents = {"parents": (candidate.id,)}
        others = tuple(item.model_copy(update=parents) for item in made)
        groups.append(Variants(of=candidate.id, candidates=others))
    return tuple(group for group in groups if group.candidates)


def _far_apart(
    candidate: Candidate, count: int, used: set[Settings], seed: int
) -> Sequence[Settings]:
    try:
        source = parse_kernel(candidate.kernel, candidate.language)
    except ContractError:
        return ()
    return spread(valid_settings(source), count, used, seed=seed)
