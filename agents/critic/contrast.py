"""Finds which difference between fast and slow candidates explains the gap between their times.

Candidates fall into buckets by time; exemplars are drawn from distinct buckets by a temperature
softmax over the buckets' mean scores, so that fast buckets are likely and slow ones possible.
Among them, candidates whose sources are alike are preferred: a small change tells most. For every
attribute in which a fast exemplar differs from a slow one, the medians of all candidates on either
side say what the difference is worth. Where the noise of the times is given, exemplars can be told
apart from each other, and every difference says whether it clears the noise.

Not here: what is concluded from it (`agents.critic`), and the test (`agents.shared.noise`). Times
in milliseconds.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp, log
from statistics import median

from kernelwright.agents.shared.facts import attributes
from kernelwright.agents.shared.memo import ByIdentity
from kernelwright.agents.shared.noise import Noise, RatioOfMedians, noise_of
from kernelwright.tools.archive import Standing, is_timed
from kernelwright.tools.candidates import implementation_key
from kernelwright.tools.types import Candidate, Evaluation, Value

BUCKETS = 4
TEMPERATURE = 0.5


class Sample(Value):
    """A correct candidate as the critic sees it: its time and what sets it apart.

    `noise` is the standard deviation of the logarithm of one of its timings.
    """

    candidate: str
    median_ms: float
    implementation: str
    tunables: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    noise: float = 0.0

    def value(self, name: str) -> str | None:
        """The value of one attribute, None when it has none of that name."""
        return dict(self.attributes).get(name)


class Difference(Value):
    """One attribute, two of its values, and the times on either side.

    `effect` is the natural logarithm of the ratio of the medians: 0.1 is about 10 %. `interval` is
    of that ratio; None where nobody asked about the noise.
    """

    name: str
    faster: str
    slower: str
    faster_ms: float
    slower_ms: float
    faster_count: int
    slower_count: int
    fast_exemplar: str
    slow_exemplar: str
    interval: RatioOfMedians | None = None

    @property
    def is_clear(self) -> bool:
        """Whether it clears the noise, as far as that was asked."""
        return self.interval is None or self.interval.is_clear

    @property
    def effect(self) -> float:
        """How much the attribute explains, as a log ratio."""
        return log(self.slower_ms / self.faster_ms)


def samples(standings: Sequence[Standing]) -> list[Sample]:
    """The correct and timed candidates, in order of writing.

    Screened times where there are any: every candidate has one, so like is compared with like.
    """
    found = (_SAMPLES.of(item) for item in standings)
    return [sample for sample in found if sample is not None]


def _sample(item: Standing) -> Sample | None:
    median_ms = _screened_ms(item.evaluation)
    if not is_timed(item.evaluation) or median_ms is None:
        return None
    return Sample(
        candidate=item.candidate.id,
        median_ms=median_ms,
        implementation=implementation_key(item.candidate),
        tunables=tuple(setting.name for setting in item.candidate.settings),
        attributes=tuple(sorted(_attributes(item.candidate, item.evaluation).items())),
        noise=noise_of(item.evaluation.screen) if item.evaluation.screen else 0.0,
    )


def _attributes(candidate: Candidate, evaluation: Evaluation) -> dict[str, str]:
    return attributes(candidate, evaluation.reports, evaluation.launches)


# An archive hands out the same standings round after round, a thousand of them after a while.
_SAMPLES = ByIdentity(_sample)


def _screened_ms(evaluation: Evaluation) -> float | None:
    return evaluation.screen.median_ms if evaluation.screen else evaluation.median_ms


def buckets(found: Sequence[Sample], count: int = BUCKETS) -> list[list[Sample]]:
    """Split by equal steps of log time, the fastest first; empty buckets are left out."""
    if not found:
        return []
    low = log(min(sample.median_ms for sample in found))
    width = (log(max(sample.median_ms for sample in found)) - low) / count or 1.0
    cut: list[list[Sample]] = [[] for _ in range(count)]
    for sample in found:
        cut[min(int((log(sample.median_ms) - low) / width), count - 1)].append(sample)
    return [bucket for bucket in cut if bucket]


def exemplars(
    found: Sequence[Sample], wanted: int, dice: random.Random, noise: Noise | None = None
) -> list[Sample]:
    """Samples from distinct buckets, the fastest first; the best of all is always among them.

    A bucket's score is the mean speed relative to the best; buckets are drawn without
    replacement by softmax(score / temperature), then one sample of each by chance: of those that
    can be told from all that were drawn before, where the `noise` is given.
    """
    cut = buckets(found)
    if not cut:
        return []
    best = min(found, key=lambda sample: sample.median_ms)
    scores = [
        sum(best.median_ms / sample.median_ms for sample in bucket) / len(bucket) for bucket in cut
    ]
    chosen, left = [best], list(range(1, len(cut)))
    while left and len(chosen) < wanted:
        weights = [exp(scores[index] / TEMPERATURE) for index in left]
        index = dice.choices(left, weights)[0]
        left.remove(index)
        apart = [item for item in cut[index] if noise is None or _is_apart(item, chosen, noise)]
        chosen += [dice.choice(apart)] if apart else []
    return sorted(chosen, key=lambda sample: sample.median_ms)


def _is_apart(sample: Sample, others: Sequence[Sample], noise: Noise) -> bool:
    """Whether a sample's time differs from each of the others' by more than the noise."""
    return all(
        noise.between(*sorted((sample, other), key=lambda item: item.median_ms)).is_clear
        for other in others
    )


def differences(
    found: Sequence[Sample], chosen: Sequence[Sample], noise: Noise | None = None
) -> list[Difference]:
    """What sets faster exemplars apart from slower ones, each difference once, the largest first.

    A tunable means something only within one kernel, so its two sides are compared inside the
    kernels that have both, and the medians are taken over those. Loops that were given the same
    strategies in every sample, as those of equal layers are, cannot be told apart: the first of
    them stands for all.
    """
    index = _by_value(found, _differing(chosen))
    known: dict[tuple[str, str, str], Difference] = {}
    same = _never_apart(index)
    for number, fast in enumerate(chosen):
        for slow in chosen[number + 1 :]:
            others = dict(slow.attributes)
            for name, value in fast.attributes:
                other = others.get(name, value)
                if other == value or name in same or (name, value, other) in known:
                    continue
                difference = _difference(index[name], name, value, other, (fast, slow), noise)
                if difference is not None:
                    known[name, value, other] = difference
    return sorted(known.values(), key=lambda item: -item.effect)


def _never_apart(index: Mapping[str, Mapping[str, Sequence[Sample]]]) -> set[str]:
    """The attributes that have the values of an earlier one, by length and letters, everywhere."""
    first: dict[frozenset[tuple[str, frozenset[str]]], str] = {}
    for name in sorted(index, key=lambda name: (len(name), name)):
        by_value = index[name].items()
        sides = frozenset((value, frozenset(s.candidate for s in of)) for value, of in by_value)
        first.setdefault(sides, name)
    return set(index) - set(first.values())


def _values(sample: Sample) -> dict[str, str]:
    return dict(sample.attributes)


_VALUES = ByIdentity(_values)


def _differing(chosen: Sequence[Sample]) -> set[str]:
    """Attributes of which the samples do not all have the same value."""
    values: dict[str, set[str]] = {}
    for sample in chosen:
        for name, value in sample.attributes:
            values.setdefault(name, set()).add(value)
    return {name for name, of in values.items() if len(of) > 1}


def _by_value(found: Sequence[Sample], names: set[str]) -> dict[str, dict[str, list[Sample]]]:
    """Samples by attribute and value, so that no comparison has to look at all of them."""
    index: dict[str, dict[str, list[Sample]]] = {name: {} for name in names}
    for sample in found:
        values = _VALUES.of(sample)
        for name in names & values.keys():
            index[name].setdefault(values[name], []).append(sample)
    return index


def _difference(
    by_value: Mapping[str, list[Sample]],
    name: str,
    faster: str,
    slower: str,
    pair: tuple[Sample, Sample],
    noise: Noise | None,
) -> Difference | None:
    fast_side, slow_side = comparable(name, by_value.get(faster, []), by_value.get(slower, []))
    if not fast_side or not slow_side:
        return None
    fast, slow = pair
    return Difference(
        name=name,
        faster=faster,
        slower=slower,
        faster_ms=median([sample.median_ms for sample in fast_side]),
        slower_ms=median([sample.median_ms for sample in slow_side]),
        faster_count=len(fast_side),
        slower_count=len(slow_side),
        fast_exemplar=fast.candidate,
        slow_exemplar=slow.candidate,
        interval=noise.between_groups(fast_side, slow_side) if noise is not None else None,
    )


def comparable(
    name: str, one: Sequence[Sample], other: Sequence[Sample]
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Either side of an attribute; for a tunable, only kernels in which both values were tried."""
    if any(name in tunables for tunables in {item.tunables for item in chain(one, other)}):
        both = {s.implementation for s in one} & {s.implementation for s in other}
        one = [sample for sample in one if sample.implementation in both]
        other = [sample for sample in other if sample.implementation in both]
    return one, other


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
