"""Predictions of an analysis, held against what was measured after them.

A candidate answers a prediction when it has the attribute that was named: a label that its writer
declared, a setting, or what the compiler reported. Writers choose their own words for labels, so
spelling and further words do not matter there; everything else has to be equal.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from kernelwright.agents.critic.contrast import Sample, samples
from kernelwright.agents.shared.facts import LABELS
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Prediction

# A reading of a candidate by name, None where there is none.
Read = Callable[[Standing, str], float | None]

# An attribute whose predictions failed twice and never held is believed no longer.
DISTRUSTED = 1 / 3

# A metric has to come at least this share of the predicted way.
WAY = 0.5


def no_readings(standing: Standing, name: str) -> float | None:
    """For hearings without readings: nothing but times is known."""
    return None


def score(
    standings: Sequence[Standing], analyses: Sequence[Analysis], read: Read = no_readings
) -> tuple[Prediction, ...]:
    """Hold the last analysis to its predictions, by candidates written after it.

    A prediction that nothing new can answer comes back unchecked, and is not asked again. A metric
    that nothing new has a reading of does not count; the time alone decides then.
    """
    last = analyses[-1] if analyses else None
    if last is None:
        return ()
    new = [item for item in standings if item.round > last.round]
    return tuple(
        _scored(prediction, new, read)
        for prediction in last.predictions
        if prediction.made_in_round == last.round and prediction.held is None
    )


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


def _scored(prediction: Prediction, new: Sequence[Standing], read: Read) -> Prediction:
    found = [
        sample for sample in samples(new) if answers(sample, prediction.attribute, prediction.value)
    ]
    if prediction.of == "kernels":
        found = _fastest_of_each_kernel(found)
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
