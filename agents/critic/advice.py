"""Whether what a critic advised helped: candidates that followed it against those that did not.

Predictions are scored for being true (`scoring`); advice is scored for being useful. It helped when
a larger share of the candidates that followed it beat the best before them, by more than the noise,
than of the others. Where nobody followed, or nothing got faster either way, that says nothing of
it. Advice that did not help is heeded less: it moves the order of ideas by less, and chooses no
settings any more once it failed twice and never helped (`Analysis.heeded`).
"""

from collections.abc import Mapping, Sequence

from kernelwright.agents.critic.contrast import Sample
from kernelwright.agents.critic.scoring import answers
from kernelwright.agents.shared.noise import Noise
from kernelwright.tools.types import AdviceScore, Analysis


def advice_score(
    found: Sequence[Sample],
    rounds: Mapping[str, int],
    analyses: Sequence[Analysis],
    noise: Noise | None = None,
) -> AdviceScore | None:
    """What came of the last analysis' advice; None where it gave none or nothing came after it.

    Args:
        found: Every correct and timed candidate.
        rounds: In which round each of them was written.
        analyses: All so far, the last of which is scored.
        noise: Of their times; every difference counts where it is not given.
    """
    last = analyses[-1] if analyses else None
    if last is None or not (last.prefer or last.avoid):
        return None
    before = [sample for sample in found if rounds[sample.candidate] <= last.round]
    after = [sample for sample in found if rounds[sample.candidate] > last.round]
    if not before or not after:
        return None
    best = min(before, key=lambda sample: sample.median_ms)
    followed = [sample for sample in after if _follows(sample, last)]
    others = [sample for sample in after if not _follows(sample, last)]
    score = AdviceScore(
        round=last.round,
        followed=len(followed),
        followed_faster=sum(_beats(sample, best, noise) for sample in followed),
        others=len(others),
        others_faster=sum(_beats(sample, best, noise) for sample in others),
    )
    return score.model_copy(update={"helped": _helped(score)})


def advice_trust(scores: Sequence[AdviceScore | None]) -> float:
    """How far advice is heeded: 1 when it was never decided, the less the less often it helped."""
    decided = [score.helped for score in scores if score is not None and score.helped is not None]
    return (sum(decided) + 1) / (len(decided) + 1)


def _follows(sample: Sample, advice: Analysis) -> bool:
    return _agreeing(sample, advice.prefer) > _agreeing(sample, advice.avoid)


def _agreeing(sample: Sample, words: Sequence[str]) -> int:
    pairs = (word.partition("=") for word in words)
    return sum(answers(sample, name, value) for name, _, value in pairs)


def _beats(sample: Sample, best: Sample, noise: Noise | None) -> bool:
    if sample.median_ms >= best.median_ms:
        return False
    return noise is None or noise.between(sample, best).is_clear


def _helped(score: AdviceScore) -> bool | None:
    # Shares as products, so that a side without candidates needs no care.
    with_it = score.followed_faster * max(1, score.others)
    without = score.others_faster * max(1, score.followed)
    if not score.followed or with_it == without:
        return None
    return with_it > without
