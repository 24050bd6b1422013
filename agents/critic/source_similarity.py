"""Which candidates are near to each other in their source: where a small change tells most."""

from collections import Counter
from collections.abc import Mapping, Sequence

from kernelwright.agents.critic.contrast import ByIdentity, Sample
from kernelwright.tools.types import Candidate


def fastest_settings(found: Sequence[Sample]) -> list[Sample]:
    """Every implementation once, by its fastest settings, in the order of writing."""
    fastest: dict[str, Sample] = {}
    for sample in found:
        known = fastest.setdefault(sample.implementation, sample)
        if sample.median_ms < known.median_ms:
            fastest[sample.implementation] = sample
    return list(fastest.values())


def closest(found: Sequence[Sample], sources: Mapping[str, Candidate]) -> Sample | None:
    """Of the other implementations, the one whose source differs in fewest lines from the best's.

    Args:
        found: Samples, each of another implementation.
        sources: Their candidates by id.
    """
    best = min(found, key=lambda sample: sample.median_ms, default=None)
    others = [sample for sample in found if sample is not best]
    if best is None or not others:
        return None
    own = _LINES.of(sources[best.candidate])
    return min(others, key=lambda sample: _distance(own, _LINES.of(sources[sample.candidate])))


def _distance(one: Counter[str], other: Counter[str]) -> int:
    return (one - other).total() + (other - one).total()


def _lines(candidate: Candidate) -> Counter[str]:
    text = f"{candidate.kernel}\n{candidate.plan}"
    return Counter(line.strip() for line in text.splitlines() if line.strip())


# An archive hands out the same candidates round after round.
_LINES = ByIdentity(_lines)
