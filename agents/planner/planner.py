"""The planner: its input, its answer, its Protocol, and what is wrong with a plan.

What a model planned is turned into ideas. Bans are enforced, pins come first, what was tried
already is turned away, and an option of the playbook brings its recipe along. An idea none of whose
candidates was correct may be tried once more: writing failed, not the mechanism. Two ideas are
alike when most of their telling words are the same, whatever the order and the numbers: a cluster
of 8 instead of 16 is the tuner's business. Not covered: the same idea in entirely other words,
which the ledger in the prompt is there to prevent.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kernelwright.agents.shared.facts import Steering, speaks_of
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import (
    Analysis,
    Evidence,
    Idea,
    LedgerEntry,
    StrategyVersion,
    Symptom,
    Value,
)
from kernelwright.tools.types.task import Precision


class PlannerInput(Value):
    """Everything the planner may look at.

    `best` is the fastest correct candidate so far; `parents` are the elites that the archive
    offers for refinement, the best first; `standings` everything that was judged. `strategy` is
    the evolving section of a model's prompt, None where none evolves; `moves` says in words which
    moves between behaviours paid; `island` of `islands`, from 1, is the population that this
    round grows and that `parents` come from; `explanation` is what the profiler said of the best
    in words, `readings` what it read of it, `loop_ms` what its loops took by a profiler of the
    device, as `loop=strategy`; `allow` are precisions below the task's own that the
    person admits. Times in milliseconds.
    """

    round: int
    rounds: int = 0
    wanted: int
    floor_ms: float
    baseline_ms: float | None = None
    best: Standing | None = None
    parents: tuple[Standing, ...] = ()
    tried: tuple[Idea, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    analysis: Analysis | None = None
    symptoms: tuple[Symptom, ...] = ()
    steering: Steering = Steering()
    standings: tuple[Standing, ...] = ()
    strategy: StrategyVersion | None = None
    moves: tuple[str, ...] = ()
    explanation: str = ""
    readings: tuple[Evidence, ...] = ()
    loop_ms: tuple[tuple[str, float], ...] = ()
    island: int = 1
    islands: int = 1
    allow: tuple[Precision, ...] = ()


class Proposal(Value):
    """Ideas in the order they should be tried, and the reasoning in plain words.

    `notes` say what went wrong on the way, a fallback to the playbook included. `none_ever` says
    why no round will have any; "" where others may.
    """

    ideas: tuple[Idea, ...]
    reasoning: str
    notes: tuple[str, ...] = ()
    none_ever: str = ""


class Planner(Protocol):
    """Answers a situation with a proposal; no ideas means that nothing is left to try."""

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """Propose at most `situation.wanted` ideas, none of them tried before."""
        ...


CATEGORIES = ("memory", "latency", "parallelism", "arithmetic", "fusion", "algebra")


class PlannedIdea(BaseModel):
    """One idea as the model writes it; words it leaves out are empty."""

    model_config = ConfigDict(frozen=True)

    title: str = Field(description="under ten words; names the change, not the hope", min_length=1)
    mechanism: str = Field(
        description="two to six sentences: how work and data are laid out over threads, blocks and "
        "memories, what is kept where, and what happens in which order; concrete enough that "
        "somebody else can write it without asking",
        min_length=1,
    )
    reason: str = Field(
        default="", description="why it should be faster here, with numbers (bytes, FLOP, launches)"
    )
    category: str = Field(default="", description=f"one of {', '.join(CATEGORIES)}")
    metric: str = Field(
        default="",
        description="the one reading that must change if the mechanism is right, and by how much, "
        "such as 'bytes read: 2.0x -> 1.0x of the input'",
    )
    predicted_ms: float | None = Field(
        default=None, description="expected time of the whole task, in milliseconds"
    )
    risk: str = Field(default="", description="what would make it fail or disappoint")
    start_from: str = Field(
        default="",
        description="id of the candidate that it changes; empty for one written afresh",
    )
    playbook: str = Field(
        default="",
        description="number of the playbook's option (such as P1) if the idea is that option and "
        "the playbook shall write it; else empty",
    )

    @field_validator(
        "title", "mechanism", "reason", "category", "metric", "risk", "start_from", "playbook",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _words(cls, value: object) -> object:
        """Models write null, numbers and lists of sentences where words are asked for."""
        if value is None:
            return ""
        if isinstance(value, int | float):
            return str(value)
        if isinstance(value, list):
            return " ".join(str(item) for item in value)
        return value

    @field_validator("predicted_ms", mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        """`"0.41 ms"` is a time; what is none at all is no reason to lose an idea."""
        try:
            number = float(str(value).lower().removesuffix("ms").strip().lstrip("~"))
        except ValueError:
            return None
        return number if isfinite(number) and number > 0 else None


class PlannedRound(BaseModel):
    """The whole answer."""

    model_config = ConfigDict(frozen=True)

    reasoning: str = Field(
        default="",
        description="three to eight sentences: what holds the best candidate up now, what the "
        "measurements so far say, why these ideas and why in this order",
    )
    ideas: list[PlannedIdea] = Field(description="the most promising first", min_length=1)


ALIKE = 0.6
_WORD = re.compile(r"[a-z][a-z0-9]+")
# Words that every idea has say nothing about which one it is.
_COMMON_WORDS = (
    "a an and are as at be but by each else every for from has have in into is it its more of on "
    "one only or other over so than that the their them then there they this through to together "
    "too under use used uses using what when where which while will with within without instead "
    "same all kernel kernels thread threads block blocks data value values compute computes "
    "element elements"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def like(title: str, mechanism: str, idea: Idea) -> bool:
    """Whether these words say what an idea says."""
    if _plain(title) == _plain(idea.title):
        return True
    one, other = _telling(f"{title} {mechanism}"), _telling(f"{idea.title} {idea.mechanism}")
    shared = len(one & other)
    return bool(shared) and shared / len(one | other) >= ALIKE


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


@lru_cache(maxsize=4096)  # what was tried is compared with every new idea, round after round
def _telling(text: str) -> frozenset[str]:
    """Stems of the words that tell ideas apart; every idea is asked about again each round."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _COMMON)
    return frozenset(re.sub(r"(?:ings?|ed|es|s)$", "", word) for word in words if len(word) > 2)


_TITLE_CHARACTERS = 160
_BEST = frozenset({"best", "the best", "best candidate", "current best"})


class Reviewed(Value):
    """Ideas that may be tried, and a sentence on each that may not."""

    ideas: tuple[Idea, ...] = ()
    turned_away: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def review(
    planned: Sequence[PlannedIdea],
    planner_input: PlannerInput,
    options: Sequence[Idea],
    accepted: Sequence[Idea] = (),
) -> Reviewed:
    """Look at ideas one by one, in their order.

    Args:
        planned: What the model wrote.
        planner_input: What it was asked about.
        options: What the playbook would do, in the order in which it was shown (P1, P2, ...).
        accepted: Ideas of this round that passed an earlier review.
    """
    ideas, turned_away, notes = list(accepted), list[str](), list[str]()
    for item in planned:
        option = chosen_option(item, options)
        if item.playbook.strip() and option is None:
            notes.append(f"the playbook has no open option {item.playbook.strip()!r}")
        if why := _objection(item, option, planner_input, ideas):
            turned_away.append(f"'{item.title}': {why}")
            continue
        parent = _parent(item, planner_input)
        if item.start_from.strip() and parent is None and option is None:
            notes.append(f"there is no candidate {item.start_from.strip()!r} to start from")
        ideas.append(_idea(item, option, parent, planner_input))
    return Reviewed(ideas=tuple(ideas), turned_away=tuple(turned_away), notes=tuple(notes))


def in_order(ideas: Sequence[Idea], planner_input: PlannerInput) -> tuple[Idea, ...]:
    """Pinned ideas first, at most as many as were wanted, numbered in that order."""
    pins = planner_input.steering.pins
    first = sorted(ideas, key=lambda idea: not any(speaks_of(pin, texts_of(idea)) for pin in pins))
    return tuple(
        idea.model_copy(update={"id": f"r{planner_input.round}i{number}"})
        for number, idea in enumerate(first[: planner_input.wanted], start=1)
    )


def unmet_pins(ideas: Sequence[Idea], planner_input: PlannerInput) -> tuple[str, ...]:
    """Pins that neither these ideas nor any idea before them speak of."""
    pins = planner_input.steering.pins
    known = [texts_of(idea) for idea in (*planner_input.tried, *ideas)] if pins else []
    return tuple(pin for pin in pins if not any(speaks_of(pin, texts) for texts in known))


def texts_of(idea: Idea) -> tuple[str, ...]:
    """The words by which a person may speak of an idea; a recipe's names are among them."""
    names = tuple(re.findall(r'"strategy":\s*"([^"]+)"', idea.recipe))
    return (*names, *_described(idea.title, idea.mechanism, idea.category))


def chosen_option(item: PlannedIdea, options: Sequence[Idea]) -> Idea | None:
    """The playbook's option that an idea names by its number; None when it names none."""
    number = re.fullmatch(r"\W*[pP]?\s*(\d+)\W*", item.playbook)
    if number is None or not 1 <= int(number[1]) <= len(options):
        return None
    return options[int(number[1]) - 1]


def _objection(
    item: PlannedIdea, option: Idea | None, planner_input: PlannerInput, accepted: Sequence[Idea]
) -> str:
    """Why an idea may not be tried; "" when it may."""
    texts = texts_of(option) if option else ()
    texts += _described(item.title, item.mechanism, item.category)
    if banned := [ban for ban in planner_input.steering.bans if speaks_of(ban, texts)]:
        return f"the person ruled out '{banned[0]}'"
    if option is not None:
        taken = any(idea.recipe == option.recipe for idea in accepted)
        return "that option of the playbook is among these ideas already" if taken else ""
    for idea in accepted:
        if like(item.title, item.mechanism, idea):
            return f"it says the same as '{idea.title}' of this round"
    return _tried_before(item, planner_input)


def _tried_before(item: PlannedIdea, planner_input: PlannerInput) -> str:
    alike = [idea for idea in planner_input.tried if like(item.title, item.mechanism, idea)]
    if not alike:
        return ""
    measured = {entry.idea: entry.measured_ms for entry in planner_input.ledger}
    for idea in alike:
        reached = measured.get(idea.id)
        if reached is not None:
            return f"it says the same as {idea.id}, '{idea.title}', which reached {reached:.4g} ms"
    if len(alike) > 1:
        return f"it failed twice already, as {alike[0].id} and {alike[1].id}"
    return ""


def _parent(item: PlannedIdea, planner_input: PlannerInput) -> str | None:
    """The candidate that an idea starts from, by the beginning of its id or as the best."""
    wanted = item.start_from.strip().strip("`'\"").lower()
    parents = [standing.candidate.id for standing in planner_input.parents]
    if planner_input.islands > 1 and wanted in _BEST:
        return parents[0] if parents else None
    if wanted in _BEST:
        return planner_input.best.candidate.id if planner_input.best else None
    known = [standing.candidate.id for standing in planner_input.standings]
    # Populations that are kept apart must not mix through the planner.
    known = parents if planner_input.islands > 1 else known + parents
    found = {id for id in known if len(wanted) >= 4 and id.startswith(wanted)}
    return found.pop() if len(found) == 1 else None


def _idea(item: PlannedIdea, option: Idea | None, parent: str | None, about: PlannerInput) -> Idea:
    category = next((word for word in CATEGORIES if word in item.category.lower()), "")
    predicted_ms = item.predicted_ms
    if option is not None:
        category = option.category
        predicted_ms, parent = predicted_ms or option.predicted_ms, option.parent
    return Idea(
        id=f"r{about.round}",
        title=" ".join(item.title.split())[:_TITLE_CHARACTERS],
        mechanism=item.mechanism.strip(),
        reason=item.reason.strip(),
        category=category or item.category.strip().lower() or "memory",
        metric=item.metric.strip() or (option.metric if option else ""),
        predicted_ms=predicted_ms,
        risk=item.risk.strip(),
        round=about.round,
        recipe=option.recipe if option else "",
        origin="model",
        parent=parent,
        strategy=about.strategy.id if about.strategy else "",
    )


def _described(title: str, mechanism: str, category: str) -> tuple[str, ...]:
    """The texts as they are, and without the punctuation that would hide a word."""
    texts = (title, mechanism, category)
    return (*texts, *(re.sub(r"[^\w=+-]+", " ", text) for text in texts))
