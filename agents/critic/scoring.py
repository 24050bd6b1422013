"""How a critic's predictions are scored: by candidates written after them, and clear of the noise.

A candidate answers a prediction when it has the attribute that was named: a label that its writer
declared, a setting, or what the compiler reported. Writers choose their own words for labels, so
spelling and further words do not matter there; everything else has to be equal.

A prediction counts only where it could have failed. An outcome within the noise of the times is
undecided, and so is one that nothing measured before could have contradicted.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from kernelwright.agents.critic.contrast import Sample, samples
from kernelwright.agents.shared.facts import LABELS
from kernelwright.agents.shared.noise import Noise
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Prediction

# A reading of a candidate by name, None where there is none.
Read = Callable[[Standing, str], float | None]

# A metric has to come at least this share of the predicted way.
WAY = 0.5


def no_readings(standing: Standing, name: str) -> float | None:
    """For hearings without readings: nothing but times is known."""
    return None


def score(
    standings: Sequence[Standing],
    analyses: Sequence[Analysis],
    read: Read = no_readings,
    noise: Noise | None = None,
) -> tuple[Prediction, ...]:
    """Hold the last analysis to its predictions, by candidates written after it.

    A prediction that nothing new can answer comes back unchecked, and is not asked again. A metric
    that nothing new has a reading of does not count; the time alone decides then. Where the noise
    is given, an outcome within it is undecided: it has a measured time and did neither hold nor
    fail. So is one that could not have failed, as nothing known before was as slow as its bound.
    """
    last = analyses[-1] if analyses else None
    if last is None:
        return ()
    new = [item for item in standings if item.round > last.round]
    asked = [p for p in last.predictions if p.made_in_round == last.round and p.held is None]
    scored = tuple(_scored(prediction, new, read) for prediction in asked)
    if noise is None:
        return scored
    before = samples([item for item in standings if item.round <= last.round])
    slowest_ms = max((sample.median_ms for sample in before), default=0.0)
    return tuple(_decided(item, new, noise, len(asked), slowest_ms) for item in scored)


def _decided(
    scored: Prediction, new: Sequence[Standing], noise: Noise, outcomes: int, slowest_ms: float
) -> Prediction:
    """The outcome as it is, or undecided; a metric that did not come its way decides by itself."""
    found = _answering(scored, new)
    measured_ms = scored.measured_ms
    if scored.held is None or measured_ms is None or not found:
        return scored
    if scored.metric_measured is not None and not _came(scored, scored.metric_measured):
        return scored
    could_fail = max(slowest_ms, measured_ms) >= scored.below_ms
    if could_fail and noise.clears(found, scored.below_ms, outcomes):
        return scored
    return scored.model_copy(update={"held": None})


def is_undecided(item: Prediction) -> bool:
    """Whether candidates answered a prediction, and their times could not say which way."""
    return item.held is None and item.measured_ms is not None


def checked(analyses: Sequence[Analysis]) -> tuple[Prediction, ...]:
    """Predictions of all rounds that were scored; they stand in the analysis that scored them."""
    return tuple(p for analysis in analyses for p in analysis.predictions if p.held is not None)


def trust(record: Sequence[Prediction]) -> dict[str, float]:
    """For each attribute, how far its predictions held: 1 when never checked, towards 0."""
    held: dict[str, list[bool]] = defaultdict(list)
    for item in record:
        held[item.attribute].append(item.held is True)
    return {name: (sum(of) + 1) / (len(of) + 1) for name, of in held.items()}


def answers(sample: Sample, attribute: str, value: str) -> bool:
    """Whether a candidate has the attribute that a prediction names."""
    own = sample.value(attribute)
    if own is None:
        return False
    if attribute in LABELS:
        return bool(_words(value)) and _words(value) <= _words(own)
    return " ".join(own.lower().split()) == " ".join(value.lower().split())


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def _answering(prediction: Prediction, new: Sequence[Standing]) -> list[Sample]:
    """The candidates that answer a prediction."""
    found = [
        sample for sample in samples(new) if answers(sample, prediction.attribute, prediction.value)
    ]
    return _fastest_of_each_kernel(found) if prediction.of == "kernels" else found


def _scored(prediction: Prediction, new: Sequence[Standing], read: Read) -> Prediction:
    found = _answering(prediction, new)
    if not found:
        return prediction
    measured_ms = median(sample.median_ms for sample in found)
    counted = {sample.candidate for sample in found}
    readings = [
        value
        for item in new
        if item.candidate.id in counted
        and prediction.metric
        and (value := read(item, prediction.metric)) is not None
    ]
    reading = median(readings) if readings else None
    held = measured_ms < prediction.below_ms and (reading is None or _came(prediction, reading))
    return prediction.model_copy(
        update={"held": held, "measured_ms": measured_ms, "metric_measured": reading}
    )


def _fastest_of_each_kernel(found: Sequence[Sample]) -> list[Sample]:
    """What a kernel is labelled with is not refuted by settings that a tuner only tried."""
    fastest: dict[str, Sample] = {}
    for sample in sorted(found, key=lambda sample: sample.median_ms):
        fastest.setdefault(sample.implementation, sample)
    return list(fastest.values())


def _came(prediction: Prediction, reading: float) -> bool:
    """Whether the metric moved as it should; where no start is known, whether it got there."""
    start, goal = prediction.metric_from, prediction.metric_to
    if goal is None:
        return True
    if start is None or start == goal:
        return abs(reading - goal) <= abs(goal) * (1.0 - WAY)
    return (reading - start) / (goal - start) >= WAY
