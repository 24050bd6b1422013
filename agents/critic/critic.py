"""The critic: its input, its question, its Protocol, the critic by rules, and how it is scored.

An analysis claims which differences explain the gap, each with its numbers; says what that
implies; names what to prefer and to avoid; and predicts. The next analysis holds those predictions
against what was measured after them, and an attribute whose predictions failed counts for less
from then on.

A candidate answers a prediction when it has the attribute that was named: a label that its writer
declared, a setting, or what the compiler reported. Writers choose their own words for labels, so
spelling and further words do not matter there; everything else has to be equal.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from math import exp, sqrt
from statistics import median
from typing import Protocol

from kernelwright.agents.critic.contrast import (
    Difference,
    Sample,
    closest,
    differences,
    exemplars,
    fastest_settings,
    samples,
)
from kernelwright.agents.shared.facts import LABELS, Steering, is_actionable, known, reading
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import (
    Analysis,
    Claim,
    Evidence,
    Idea,
    LedgerEntry,
    Prediction,
    Symptom,
    Task,
    Value,
    Verdict,
)

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


EXEMPLARS = 4


class Manner(Value):
    """How a critic is asked: shown the best's closest relative too, and also after the last round.

    The defaults are those of runs from before it was kept.
    """

    relatives: bool = False
    after_the_last: bool = True


class CriticInput(Value):
    """Everything the critic may look at: all judged candidates and its own earlier words.

    `best` is the fastest by its most trusted time, None where the samples alone tell. `task` and
    `hardware` give readings beside the times; `explained` is what the profiler said of
    candidates, by their id. `last` where no round can follow, so that nobody will act on what is
    said. Times in milliseconds, None where they are not known.
    """

    round: int
    standings: tuple[Standing, ...]
    analyses: tuple[Analysis, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    seed: int = 0
    best: Standing | None = None
    task: Task | None = None
    hardware: Hardware | None = None
    floor_ms: float | None = None
    baseline_ms: float | None = None
    ideas: tuple[Idea, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    explained: tuple[tuple[str, str], ...] = ()
    steering: Steering = Steering()
    manner: Manner = Manner()
    last: bool = False

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The correct and timed candidates as they are contrasted."""
        return tuple(samples(self.standings))

    @cached_property
    def exemplars(self) -> tuple[Sample, ...]:
        """Samples from distinct buckets, the fastest first; the same input has the same."""
        dice = random.Random(f"{self.seed}:critic:{self.round}")
        return tuple(exemplars(self.samples, EXEMPLARS, dice))

    @cached_property
    def exhibited(self) -> tuple[Sample, ...]:
        """What a model is shown: the best, its closest relative, and others of distinct speed.

        Each implementation once, by its fastest settings: slow settings explain nothing new.
        """
        if not self.manner.relatives:
            return self.exemplars
        dice = random.Random(f"{self.seed}:critic:{self.round}")
        sources = {item.candidate.id: item.candidate for item in self.standings}
        fastest = fastest_settings(self.samples)
        related = closest(fastest, sources)
        left = [sample for sample in fastest if sample is not related]
        drawn = exemplars(left, EXEMPLARS - (related is not None), dice)
        shown = (*drawn, related) if related is not None else drawn
        return tuple(sorted(shown, key=lambda sample: sample.median_ms))

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """What sets the faster exemplars apart, the largest difference first."""
        return tuple(differences(self.samples, self.exemplars))

    def facts(self, standing: Standing) -> tuple[Evidence, ...]:
        """Every number that is known of a candidate."""
        return known(standing.candidate, standing.evaluation, self.task, self.hardware)

    def reading(self, standing: Standing, name: str) -> float | None:
        """One number that is known of a candidate, by its name; None where there is none."""
        return reading(self.facts(standing), name)


class Critic(Protocol):
    """Explains the gaps between candidates."""

    async def critique(self, critic_input: CriticInput) -> Analysis:
        """Contrast what was measured, and score what was predicted the round before."""
        ...


CLAIMS = 3
# Differences below 3 % drown in the noise of a screening.
WORTH_SAYING = 0.03
# An attribute is avoided for failing only when it failed this often and never held.
FAILURES = 2


class PlaybookCritic:
    """Contrasts by medians over attributes."""

    async def critique(self, critic_input: CriticInput) -> Analysis:
        """See the class; the same input gives the same analysis."""
        scored = score(critic_input.standings, critic_input.analyses, critic_input.reading)
        record = (
            *checked(critic_input.analyses),
            *(item for item in scored if item.held is not None),
        )
        found = critic_input.samples
        telling = _telling(critic_input.differences, trust(record))
        steerable = [item for item in telling if is_actionable(item.name)]
        failing = _always_fail(critic_input.standings)
        return Analysis(
            round=critic_input.round,
            claims=tuple(_claim(item, found) for item in telling),
            implies=_implies(telling, found, failing, critic_input.symptoms),
            prefer=tuple(dict.fromkeys(f"{item.name}={item.faster}" for item in steerable)),
            avoid=_avoid(steerable, failing),
            predictions=(*scored, *(_predict(item, critic_input.round) for item in steerable)),
            predictions_held=sum(item.held is True for item in record),
            predictions_checked=len(record),
        )


def _telling(found: Sequence[Difference], trusted: dict[str, float]) -> list[Difference]:
    """The few differences that explain most, one an attribute, weighed by support and trust."""

    def weight(item: Difference) -> float:
        support = sqrt(min(item.faster_count, item.slower_count, 4))
        return item.effect * support * trusted.get(item.name, 1.0)

    best: dict[str, Difference] = {}
    for item in sorted(found, key=weight, reverse=True):
        if item.effect > WORTH_SAYING and trusted.get(item.name, 1.0) > DISTRUSTED:
            best.setdefault(item.name, item)
    return list(best.values())[:CLAIMS]


def _claim(item: Difference, found: Sequence[Sample]) -> Claim:
    times = {sample.candidate: sample.median_ms for sample in found}
    return Claim(
        words=f"{item.name}={item.faster} is {exp(item.effect):.2f}x as fast as "
        f"{item.name}={item.slower}",
        faster=item.fast_exemplar,
        slower=item.slow_exemplar,
        numbers=(
            f"{item.fast_exemplar}: {times[item.fast_exemplar]:.4g} ms",
            f"{item.slow_exemplar}: {times[item.slow_exemplar]:.4g} ms",
            f"median with {item.faster}: {item.faster_ms:.4g} ms over {item.faster_count}",
            f"median with {item.slower}: {item.slower_ms:.4g} ms over {item.slower_count}",
        ),
    )


def _predict(item: Difference, round: int) -> Prediction:
    """Candidates with the better value should stay on the better side of the middle."""
    below_ms = sqrt(item.faster_ms * item.slower_ms)
    return Prediction(
        words=f"candidates with {item.name}={item.faster} have a median below {below_ms:.4g} ms",
        attribute=item.name,
        value=item.faster,
        below_ms=below_ms,
        made_in_round=round,
    )


def _always_fail(standings: Sequence[Standing]) -> dict[str, str]:
    """Strategies that failed every time, with the last reason."""
    outcomes: dict[str, list[Standing]] = defaultdict(list)
    for item in standings:
        for text in item.candidate.strategies:
            outcomes[text].append(item)
    return {
        text: items[-1].evaluation.verification.reason
        for text, items in outcomes.items()
        if len(items) >= FAILURES
        and all(item.evaluation.verdict is not Verdict.CORRECT for item in items)
    }


def _avoid(steerable: Sequence[Difference], failing: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(f"{d.name}={d.slower}" for d in steerable), *failing)))


def _implies(
    telling: Sequence[Difference],
    found: Sequence[Sample],
    failing: dict[str, str],
    symptoms: Sequence[Symptom],
) -> str:
    """What follows in general, in two or three sentences."""
    words = []
    if telling:
        first = telling[0]
        words.append(
            f"Most of the gap between {first.slow_exemplar} and {first.fast_exemplar} goes with "
            f"{first.name}: {first.faster} rather than {first.slower}."
        )
    elif len(found) < 2:
        words.append("There are not two correct candidates to contrast yet.")
    else:
        words.append("No single difference explains a gap of more than 3 %.")
    words += [f"{text} failed every time: {reason}." for text, reason in sorted(failing.items())]
    words += [f"{symptom.words[:1].upper()}{symptom.words[1:]}." for symptom in symptoms[:2]]
    return " ".join(words)


def silenced(critic: object, seed: int) -> Critic:
    """In any critic's place, the one that says nothing."""
    return SilentCritic()


class SilentCritic:
    """Contrasts nothing and predicts nothing."""

    async def critique(self, critic_input: CriticInput) -> Analysis:
        """An analysis without a word."""
        return Analysis(round=critic_input.round, claims=(), implies="")
