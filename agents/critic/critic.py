"""The critic: its input, its question, its Protocol, the critic by rules, and how it is scored.

An analysis claims which differences explain the gap, each with its numbers; says what that
implies; names what to prefer and to avoid; and predicts. The next analysis holds those predictions
against what was measured after them, and an attribute whose predictions failed counts for less
from then on.

Nothing is said of differences within the noise of the times (`agents.shared.noise`). A setting is
named only if the winner has it, and candidates with it are faster beyond the noise than those with
the other value. A prediction counts only if it could have failed, and its outcome is clear of the
noise; else it is undecided. How predictions are scored stands in `scoring`.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from math import exp, log, sqrt
from typing import Protocol

from kernelwright.agents.critic.advice import advice_score, advice_trust
from kernelwright.agents.critic.contrast import (
    Difference,
    Sample,
    closest,
    comparable,
    differences,
    exemplars,
    fastest_settings,
    samples,
)
from kernelwright.agents.critic.scoring import checked, is_undecided, score, trust
from kernelwright.agents.shared.facts import (
    LABELS,
    Shift,
    Steering,
    is_actionable,
    known,
    reading,
    shift_behind,
)
from kernelwright.agents.shared.noise import Noise, noise_among, overlap
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing
from kernelwright.tools.profile import casts_doubt
from kernelwright.tools.types import (
    DISTRUSTED,
    AdviceScore,
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

EXEMPLARS = 4


class Manner(Value):
    """How a critic is asked: shown the best's closest relative too, and also after the last round.

    `noise` is whether it says nothing of differences within the noise, `readings` whether it sees
    what profilers of the device measured, `advice` whether what it advised is scored. The defaults
    are those of runs from before it was kept.
    """

    relatives: bool = False
    after_the_last: bool = True
    noise: bool = False
    readings: bool = False
    advice: bool = False


class CriticInput(Value):
    """Everything the critic may look at: all judged candidates and its own earlier words.

    `best` is the fastest by its most trusted time, None where the samples alone tell. `task` and
    `hardware` give readings beside the times, `profiled` those of the profiler; `explained` is what
    it said of candidates. Both by their id. `last` where no round can follow, so that nobody will
    act on what is said; `steers` where what it says has a say in what is tried. Times in
    milliseconds, None where they are not known.
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
    profiled: tuple[tuple[str, tuple[Evidence, ...]], ...] = ()
    steering: Steering = Steering()
    manner: Manner = Manner(noise=True, readings=True, advice=True)
    last: bool = False
    steers: bool = True

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The correct and timed candidates as they are contrasted."""
        return tuple(samples(self.standings))

    @cached_property
    def noise(self) -> Noise | None:
        """The noise of the samples; None where it is not asked about."""
        if not self.manner.noise:
            return None
        return noise_among(self.samples, [dict(item.attributes) for item in self.samples])

    @cached_property
    def winner(self) -> Sample | None:
        """The best as a sample; the fastest of them where none is named. None without any."""
        best = self.best.candidate.id if self.best else ""
        named = (item for item in self.samples if item.candidate == best)
        fastest = min(self.samples, key=lambda sample: sample.median_ms, default=None)
        return next(named, fastest)

    @cached_property
    def exemplars(self) -> tuple[Sample, ...]:
        """Samples from distinct buckets, the fastest first; the same input has the same."""
        dice = random.Random(f"{self.seed}:critic:{self.round}")
        return tuple(exemplars(self.samples, EXEMPLARS, dice, self.noise))

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
        drawn = exemplars(left, EXEMPLARS - (related is not None), dice, self.noise)
        shown = (*drawn, related) if related is not None else drawn
        return tuple(sorted(shown, key=lambda sample: sample.median_ms))

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """What sets the faster exemplars apart, the largest difference first."""
        return tuple(differences(self.samples, self.exemplars, self.noise))

    @cached_property
    def _readings(self) -> dict[str, tuple[Evidence, ...]]:
        return dict(self.profiled)

    def facts(self, standing: Standing) -> tuple[Evidence, ...]:
        """Every number that is known of a candidate."""
        measured = self._readings.get(standing.candidate.id, ())
        return known(standing.candidate, standing.evaluation, self.task, self.hardware, measured)

    def is_profiled(self, candidate: str) -> bool:
        """Whether the profiler read that candidate."""
        return candidate in self._readings

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
# From this share of a gap on, a difference goes with most of it.
MOST = 0.5
# An attribute is avoided for failing only when it failed this often and never held.
FAILURES = 2


class PlaybookCritic:
    """Contrasts by medians over attributes."""

    async def critique(self, critic_input: CriticInput) -> Analysis:
        """See the class; the same input gives the same analysis."""
        earlier, noise = critic_input.analyses, critic_input.noise
        scored = score(critic_input.standings, earlier, critic_input.reading, noise)
        record = (*checked(earlier), *(item for item in scored if item.held is not None))
        telling = _telling(critic_input, trust(record))
        steerable = [item for item in telling if is_actionable(item.name)]
        failing = _always_fail(critic_input.standings)
        advice = _scored_advice(critic_input)
        return Analysis(
            round=critic_input.round,
            claims=tuple(_claim(item, critic_input) for item in telling),
            implies=_implies(telling, critic_input, failing),
            prefer=tuple(dict.fromkeys(f"{item.name}={item.faster}" for item in steerable)),
            avoid=_avoid(steerable, failing),
            predictions=(*scored, *(_predict(item, critic_input.round) for item in steerable)),
            predictions_held=sum(item.held is True for item in record),
            predictions_checked=len(record),
            predictions_undecided=_undecided(earlier, scored),
            advice=advice,
            advice_trust=advice_trust((*(item.advice for item in earlier), advice)),
        )


def _scored_advice(critic_input: CriticInput) -> AdviceScore | None:
    """Whether the last advice helped; None where nobody asked, or nobody was to follow it."""
    if not (critic_input.manner.advice and critic_input.steers):
        return None
    rounds = {item.candidate.id: item.round for item in critic_input.standings}
    found, analyses = critic_input.samples, critic_input.analyses
    return advice_score(found, rounds, analyses, critic_input.noise)


def _undecided(earlier: Sequence[Analysis], scored: Sequence[Prediction]) -> int:
    """How many outcomes were within the noise, over all rounds."""
    known = (*(p for analysis in earlier for p in analysis.predictions), *scored)
    return sum(is_undecided(item) for item in known)


def _telling(critic_input: CriticInput, trusted: dict[str, float]) -> list[Difference]:
    """The few differences that explain most, one an attribute, weighed by support and trust."""

    def weight(item: Difference) -> float:
        support = sqrt(min(item.faster_count, item.slower_count, 4))
        return item.effect * support * trusted.get(item.name, 1.0)

    best: dict[str, Difference] = {}
    for item in sorted(critic_input.differences, key=weight, reverse=True):
        believed = trusted.get(item.name, 1.0) > DISTRUSTED
        if item.effect > WORTH_SAYING and believed and _may_be_named(item, critic_input):
            best.setdefault(item.name, item)
    return list(best.values())[:CLAIMS]


def _may_be_named(item: Difference, critic_input: CriticInput) -> bool:
    """Whether it clears the noise, and is the winner's; anything where noise is not asked about."""
    winner = critic_input.winner
    if critic_input.noise is None or winner is None:
        return True
    return item.is_clear and winner.value(item.name) == item.faster


def _claim(item: Difference, critic_input: CriticInput) -> Claim:
    times = {sample.candidate: sample.median_ms for sample in critic_input.samples}
    shift = _shift(item, critic_input) if critic_input.manner.readings else None
    return Claim(
        words=f"{item.name}={item.faster} is {exp(item.effect):.2f}x as fast as "
        f"{item.name}={item.slower}{f'; {shift.words}' if shift else ''}",
        faster=item.fast_exemplar,
        slower=item.slow_exemplar,
        numbers=(
            f"{item.fast_exemplar}: {times[item.fast_exemplar]:.4g} ms",
            f"{item.slow_exemplar}: {times[item.slow_exemplar]:.4g} ms",
            f"median with {item.faster}: {item.faster_ms:.4g} ms over {item.faster_count}",
            f"median with {item.slower}: {item.slower_ms:.4g} ms over {item.slower_count}",
            *((f"ratio of the medians: {item.interval}",) if item.interval else ()),
            *(shift.numbers if shift else ()),
        ),
    )


def _shift(item: Difference, critic_input: CriticInput) -> Shift | None:
    """The reading behind a difference, of the fastest of either side that were profiled."""
    found = critic_input.samples
    sides = comparable(
        item.name,
        [sample for sample in found if sample.value(item.name) == item.faster],
        [sample for sample in found if sample.value(item.name) == item.slower],
    )
    standings = {one.candidate.id: one for one in critic_input.standings}
    exemplars = (item.fast_exemplar, item.slow_exemplar)
    shown = [_shown(*pair, critic_input) for pair in zip(sides, exemplars, strict=True)]
    fast, slow = (standings[name] for name in shown)
    return shift_behind(
        (fast.candidate.id, critic_input.facts(fast)),
        (slow.candidate.id, critic_input.facts(slow)),
        item.effect,
    )


def _shown(side: Sequence[Sample], exemplar: str, critic_input: CriticInput) -> str:
    """Whose readings stand for a side: the exemplar's, unless only others were profiled."""
    profiled = [sample for sample in side if critic_input.is_profiled(sample.candidate)]
    if not profiled or critic_input.is_profiled(exemplar):
        return exemplar
    return min(profiled, key=lambda sample: sample.median_ms).candidate


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
    """Strategies that failed every time, with the last reason.

    Of loops that were given the same one each time, as those of equal layers are, the first.
    """
    outcomes: dict[str, list[Standing]] = defaultdict(list)
    for item in standings:
        for text in item.candidate.strategies:
            outcomes[text].append(item)
    failing: dict[tuple[str, ...], str] = {}
    for text, items in sorted(outcomes.items(), key=lambda pair: (len(pair[0]), pair[0])):
        failed = all(item.evaluation.verdict is not Verdict.CORRECT for item in items)
        if failed and len(items) >= FAILURES:
            name, _, strategy = text.partition("=")
            what = text if name in LABELS else strategy
            failing.setdefault((what, *(item.candidate.id for item in items)), text)
    return {text: outcomes[text][-1].evaluation.verification.reason for text in failing.values()}


def _avoid(steerable: Sequence[Difference], failing: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(f"{d.name}={d.slower}" for d in steerable), *failing)))


def _implies(
    telling: Sequence[Difference], critic_input: CriticInput, failing: dict[str, str]
) -> str:
    """What follows in general, in two or three sentences; what casts doubt on all of it first."""
    doubts = [item for item in critic_input.symptoms if casts_doubt(item)]
    others = [item for item in critic_input.symptoms if not casts_doubt(item)][:2]
    words = [_sentence(item.words) for item in doubts[:1]]
    words.append(_gap(telling[0], critic_input) if telling else _no_gap(critic_input))
    words += [f"{text} failed every time: {reason}." for text, reason in sorted(failing.items())]
    return " ".join((*words, *(_sentence(item.words) for item in others)))


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _gap(first: Difference, critic_input: CriticInput) -> str:
    """What goes with the gap between two exemplars, and how much of it that is."""
    times = {sample.candidate: sample.median_ms for sample in critic_input.samples}
    gap = log(times[first.slow_exemplar] / times[first.fast_exemplar])
    share = first.effect / gap if gap > 0.0 else 1.0
    how_much = "Most" if share >= MOST or critic_input.noise is None else f"{share:.0%}"
    return (
        f"{how_much} of the gap between {first.slow_exemplar} and {first.fast_exemplar} goes with "
        f"{first.name}: {first.faster} rather than {first.slower}."
    )


def _no_gap(critic_input: CriticInput) -> str:
    """Why nothing is explained."""
    found, noise = critic_input.samples, critic_input.noise
    if len(found) < 2:
        return "There are not two correct candidates to contrast yet."
    fast = min(found, key=lambda sample: sample.median_ms)
    slow = max(found, key=lambda sample: sample.median_ms)
    if noise is not None and not (apart := noise.between(fast, slow)).is_clear:
        return f"{overlap(fast.candidate, slow.candidate, apart)}."
    if noise is not None:
        return (
            "No setting of the best sets it apart by more than the noise, and than candidates that "
            "share it differ among themselves."
        )
    return "No single difference explains a gap of more than 3 %."


def silenced(critic: object, seed: int) -> Critic:
    """In any critic's place, the one that says nothing."""
    return SilentCritic()


class SilentCritic:
    """Contrasts nothing and predicts nothing."""

    async def critique(self, critic_input: CriticInput) -> Analysis:
        """An analysis without a word."""
        return Analysis(round=critic_input.round, claims=(), implies="")
