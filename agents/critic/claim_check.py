"""Checks a critic's answer against the numbers.

A claim is kept only with readings of both of its exemplars that were measured so, and only of two
whose times differ beyond the noise; a prediction only where candidates of the next round can answer
it. What is dropped is told in a note, which the
critic reads in the next round.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

from pydantic import BaseModel, Field

from kernelwright.agents.critic.critic import CriticInput
from kernelwright.agents.critic.exhibits import STEPS, Contrast, Exhibit
from kernelwright.agents.critic.scoring import checked, trust
from kernelwright.agents.shared.facts import (
    LABELS,
    Citation,
    Number,
    Texts,
    citations,
    complaint,
    is_actionable,
    reading,
    unfounded_ratios,
)
from kernelwright.agents.shared.noise import Noise, overlap
from kernelwright.tools.types import (
    DISTRUSTED,
    Analysis,
    Claim,
    Prediction,
    Rank,
)

MOST_CLAIMS, MOST_PREDICTIONS, MOST_WORDS = 4, 4, 4


class Explained(BaseModel):
    """One difference that explains part of the gap."""

    words: str = Field(description="one or two sentences: the difference and its mechanism")
    faster: str = Field(description="the faster exhibit, as K1")
    slower: str = Field(description="the slower exhibit, as K3")
    numbers: Texts = Field(
        description="at least one for each of the two, copied from the tables, as K1.screen_ms=0.41"
    )


class Worth(BaseModel):
    """One thing to try next, and what will be measured if it is right."""

    words: str = Field(description="what to change, and why that should help")
    attribute: str = Field(
        default="", description="the name by which such a candidate will be known: memory, TILE"
    )
    value: str = Field(default="", description="the value of that attribute, as in memory=VALUE")
    below_ms: Number = Field(
        default=None, description="the median screen_ms of such candidates will be below this"
    )
    metric: str = Field(default="", description="one more reading that will change: registers")
    metric_to: Number = Field(default=None, description="what that reading will become")


class CriticAnswer(BaseModel):
    """What explains the gap, what that implies, what to try next."""

    explains: list[Explained]
    implies: str = Field(description="two or three sentences that hold beyond these candidates")
    next: list[Worth] = Field(description="the most promising first")
    prefer: Texts = Field(default=[], description="attributes to keep, as name=value")
    avoid: Texts = Field(default=[], description="attributes to stay away from, as name=value")


def merged(
    said: CriticAnswer, seen: Contrast, known: Analysis, critic_input: CriticInput
) -> Analysis:
    """The model's words where the numbers bear them out, over the playbook's analysis `known`.

    Where no two exhibits can be told apart, of the model's words only what it would try is kept.
    """
    claims, notes = _claims(said, seen)
    predictions, open_words, more = _predictions(said, seen, critic_input.round)
    old = tuple(p for p in known.predictions if p.made_in_round < critic_input.round)
    trusted = trust((*checked(critic_input.analyses), *(p for p in old if p.held is not None)))
    nothing_apart = len(seen.alike) == comb(len(seen.exhibits), 2)
    implies = "" if nothing_apart else " ".join(seen.with_ids(said.implies).split())
    if open_words:
        implies = f"{implies or known.implies} Also worth trying: {'; '.join(open_words)}."
    return known.model_copy(
        update={
            "claims": claims or known.claims,
            "implies": implies or known.implies,
            "prefer": (() if nothing_apart else _attributes(said.prefer, seen, trusted))
            or known.prefer,
            "avoid": tuple(dict.fromkeys((*_attributes(said.avoid, seen, trusted), *known.avoid))),
            "predictions": (*old, *predictions),
            "origin": "model",
            "notes": (*known.notes, *notes, *more),
        }
    )


def _claims(said: CriticAnswer, seen: Contrast) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
    """The claims that hold, and why others were left out."""
    claims, notes = [], []
    for item in said.explains[:MOST_CLAIMS]:
        claim, wrong = _claim(item, seen)
        if claim is not None:
            claims.append(claim)
        if wrong:
            what = "a number" if claim is not None else "a claim"
            notes.append(
                seen.with_ids(f"{what} of the critic's was left out ({'; '.join(wrong)}): ")
                + seen.with_ids(item.words)[:200]
            )
    return tuple(claims), tuple(notes)


def _claim(item: Explained, seen: Contrast) -> tuple[Claim | None, list[str]]:
    """The claim with the numbers that hold, and what does not hold; None without numbers."""
    faster, slower = seen.named(item.faster), seen.named(item.slower)
    if faster is None or slower is None:
        return None, [f"there are no exhibits {item.faster!r} and {item.slower!r}"]
    if faster.sample.median_ms >= slower.sample.median_ms:
        return None, [f"{faster.name} is not faster than {slower.name}"]
    if within := _within_noise(faster, slower, seen.noise):
        return None, [within]
    unfounded = unfounded_ratios(item.words, seen.facts, seen.ratios)
    wrong = [f"no two numbers give {words!r}" for words in unfounded]
    fatal = bool(wrong)
    numbers: list[Citation] = []
    for text in item.numbers:
        found = citations(text)
        problems = [problem for cited in found if (problem := complaint(cited, seen.facts))]
        numbers += [cited for cited in found if not complaint(cited, seen.facts)]
        wrong += problems if found else [f"{text[:60]!r} cites no reading"]
    wrong += (alike := _cited_within_noise(numbers, seen))
    if fatal or alike or not {faster.name, slower.name} <= {cited.exhibit for cited in numbers}:
        return None, wrong or ["it cites no number of both exhibits"]
    return Claim(
        words=seen.with_ids(item.words),
        faster=faster.candidate,
        slower=slower.candidate,
        numbers=tuple(_shown(cited.exhibit, cited.name, seen) for cited in numbers),
    ), wrong


def _within_noise(faster: Exhibit, slower: Exhibit, noise: Noise | None) -> str:
    """Why nothing explains that one is faster; "" where it is faster beyond the noise."""
    if noise is None or (gap := noise.between(faster.sample, slower.sample)).is_clear:
        return ""
    return overlap(faster.name, slower.name, gap)


def _cited_within_noise(numbers: Sequence[Citation], seen: Contrast) -> list[str]:
    """Which two times of a name are cited against each other and do not differ beyond the noise."""
    times = [(cited, found) for cited in numbers if (found := _time(cited, seen)) is not None]
    pairs = [
        sorted(pair, key=lambda item: item[1])
        for pair in combinations(times, 2)
        if pair[0][0].name == pair[1][0].name and pair[0][0].exhibit != pair[1][0].exhibit
    ]
    return [
        f"{one.exhibit}.{one.name} and {other.exhibit}.{other.name} are within the noise"
        for (one, fast_ms), (other, slow_ms) in pairs
        if not _is_apart((one.exhibit, fast_ms), (other.exhibit, slow_ms), seen)
    ]


def _time(cited: Citation, seen: Contrast) -> float | None:
    """What was measured, where it is a time above 0."""
    found = seen.facts[cited.exhibit]
    value = reading(found, cited.name)
    timed = any(item.unit == "ms" for item in found if item.is_called(cited.name))
    return value if timed and value else None


def _is_apart(one: tuple[str, float], other: tuple[str, float], seen: Contrast) -> bool:
    first, second = seen.named(one[0]), seen.named(other[0])
    if seen.noise is None or first is None or second is None:
        return True
    gap = seen.noise.between_times(one[1], other[1], first.sample, second.sample)
    return gap.is_clear


def _shown(exhibit: str, name: str, seen: Contrast) -> str:
    """A number as it was measured, not as it was cited."""
    found = seen.named(exhibit)
    item = next(item for item in (found.facts if found else ()) if item.is_called(name))
    value = reading(seen.facts[exhibit], name)
    told = f"{exhibit}: {name} {value:.6g} {item.unit}".strip()
    # How it was come by goes without saying of the judge's times and of what a compiler reports.
    counted = item.rank in (Rank.MEASURED, Rank.DERIVED, Rank.ESTIMATED) and item.unit != "ms"
    return seen.with_ids(f"{told} ({item.rank.value})" if counted else told)


def _predictions(
    said: CriticAnswer, seen: Contrast, round: int
) -> tuple[tuple[Prediction, ...], tuple[str, ...], tuple[str, ...]]:
    """Predictions that can be checked, the words of what cannot be, and notes on the latter."""
    predictions, words, notes = [], [], []
    for item in said.next[:MOST_PREDICTIONS]:
        text = seen.with_ids(" ".join(item.words.split()))
        attribute = item.attribute.strip().removesuffix("=")
        value = item.value.strip().removeprefix(f"{attribute}=")
        problem = _uncheckable(attribute, value, item.below_ms, seen)
        if problem or item.below_ms is None:
            words.append(text.rstrip("."))
            notes.append(f"nothing can check what the critic would try ({problem}): {text[:160]}")
            continue
        metric = _metric(item, seen)
        predictions.append(
            Prediction(
                words=f"{text} {_expected(item, attribute, value, metric)}",
                attribute=attribute,
                value=seen.spelled(attribute, value),
                below_ms=item.below_ms,
                made_in_round=round,
                metric=metric,
                metric_from=reading(seen.exhibits[0].facts, metric) if metric else None,
                metric_to=item.metric_to if metric else None,
                of="kernels" if attribute in LABELS else "candidates",
            )
        )
    return tuple(predictions), tuple(words), tuple(notes)


def _expected(item: Worth, attribute: str, value: str, metric: str) -> str:
    """A prediction in a form that says how it will be checked."""
    moved = f", {metric} at {item.metric_to:.4g}" if metric else ""
    return f"(expected: {attribute}={value} below {item.below_ms:.4g} ms{moved})"


def _metric(item: Worth, seen: Contrast) -> str:
    """The reading that should change, where it is one that candidates have."""
    name = item.metric.strip().rpartition(".")[2]
    known = (
        name and item.metric_to is not None and reading(seen.exhibits[0].facts, name) is not None
    )
    return name if known and not name.endswith("_ms") else ""


def _uncheckable(attribute: str, value: str, below_ms: float | None, seen: Contrast) -> str:
    """Why candidates of the next round could not answer a prediction; "" when they can."""
    if below_ms is None or below_ms <= 0:
        return "it names no time in ms"
    if not attribute or not value:
        return "it names no attribute and value"
    if attribute in STEPS:
        wanted = " ".join(value.split())
        return "" if wanted in STEPS[attribute] else f"{attribute} is never {value!r}"
    if attribute in LABELS or attribute in dict(seen.values):
        return ""
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", attribute):
        return "" if re.fullmatch(r"\d+", value) else f"the tunable {attribute} is no {value!r}"
    return f"candidates have no attribute {attribute!r}"


def _attributes(words: list[str], seen: Contrast, trusted: Mapping[str, float]) -> tuple[str, ...]:
    """What can be preferred or avoided, spelled as candidates spell it; not what kept failing."""
    found = []
    for word in words[:MOST_WORDS]:
        name, equals, value = word.strip().partition("=")
        name, value = name.strip(), value.strip()
        named = name in LABELS or name in dict(seen.values) or name.isupper()
        believed = trusted.get(name, 1.0) > DISTRUSTED
        if equals and value and named and believed and is_actionable(name):
            found.append(f"{name}={seen.spelled(name, value)}")
    return tuple(dict.fromkeys(found))
