"""Ablations: the same tasks at equal budget with parts of the search switched off.

One trial is one search. All trials of a file and seed stand next to each other in time, so that a
machine that changes during the day changes for all variants alike; and every trial may spend its
whole budget, since a variant that gives up early would look thrifty. Trials are told as they end,
and those that are known are not run again.

Not covered: whether a difference is more than chance. Take several seeds, and look at the spread.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import get_args

from kernelwright.agents.roles import ROLES
from kernelwright.profiles.load import Part, SearchPart, SearchProfile
from kernelwright.tools.types import Refusal, Value
from kernelwright.tools.types.run import Summary

# Runs one search: the file, the profile with its parts, the seed.
Search = Callable[[Path, SearchProfile, int], Awaitable[Summary | Refusal]]


class Trial(Value):
    """One search to be run; no parts left out is the whole search."""

    file: Path
    without: tuple[Part, ...]
    seed: int

    @property
    def key(self) -> tuple[str, tuple[Part, ...], int]:
        """What tells trials apart, wherever the file lies."""
        return self.file.name, self.without, self.seed


class Outcome(Value):
    """What a trial brought; `failure` says why there is no summary."""

    task: str
    without: tuple[Part, ...]
    seed: int
    minds: str
    budget: SearchProfile
    summary: Summary | None = None
    failure: str = ""

    @property
    def key(self) -> tuple[str, tuple[Part, ...], int]:
        """The key of its trial."""
        return self.task, self.without, self.seed

    @property
    def speedup(self) -> float | None:
        """The fastest baseline over the best candidate; None when nothing correct was found."""
        best = self.summary.best if self.summary else None
        return best.speedup_vs_best_baseline if best else None


class Row(Value):
    """One variant over all its trials.

    `speedup` is the geometric mean over the trials that found something correct; `against_whole`
    the geometric mean, over files and seeds that both have, of this variant's speed-up over that
    of the whole search: below 1, the part was worth something.
    """

    without: tuple[Part, ...]
    trials: int
    found: int
    speedup: float | None
    against_whole: float | None
    lowest: float | None
    highest: float | None
    candidates: float
    seconds: float
    tokens: float
    usd: float | None


def parts() -> tuple[Part, ...]:
    """Everything that can be switched off: parts of every search, and roles with their own step."""
    return (*get_args(SearchPart), *(role.part for role in ROLES.steps))


def trials(files: Sequence[Path], parts: Iterable[Part], seeds: Sequence[int]) -> tuple[Trial, ...]:
    """The whole search and one without each part, for every file and seed."""
    variants: tuple[tuple[Part, ...], ...] = ((), *((part,) for part in parts))
    return tuple(
        Trial(file=file, without=variant, seed=seed)
        for seed in seeds
        for file in files
        for variant in variants
    )


def budget(profile: SearchProfile, without: tuple[Part, ...]) -> SearchProfile:
    """The profile of a trial: the same limits for all, and no giving up before them."""
    equal = {"without": without, "patience": max(profile.patience, profile.rounds)}
    return SearchProfile.model_validate(profile.model_dump() | equal)


async def ablate(
    wanted: Iterable[Trial],
    profile: SearchProfile,
    search: Search,
    *,
    minds: str = "playbook",
    known: Iterable[Outcome] = (),
) -> AsyncIterator[Outcome]:
    """Run trials one after the other.

    Args:
        wanted: The trials, in order.
        profile: How much each may spend.
        search: Runs one of them.
        minds: Who thinks, in a word, for the record.
        known: Outcomes of an earlier session; those with the same minds and budget are kept.

    Yields:
        An outcome for every trial, known ones at once.
    """
    kept = {(item.key, item.minds, item.budget): item for item in known}
    for trial in wanted:
        spent = budget(profile, trial.without)
        before = kept.get((trial.key, minds, spent))
        yield before or await _run(trial, spent, search, minds)


async def _run(trial: Trial, spent: SearchProfile, search: Search, minds: str) -> Outcome:
    result = await search(trial.file, spent, trial.seed)
    outcome = Outcome(
        task=trial.file.name, without=trial.without, seed=trial.seed, minds=minds, budget=spent
    )
    if isinstance(result, Refusal):
        return outcome.model_copy(update={"failure": result.sentence})
    return outcome.model_copy(update={"summary": result})


def rows(outcomes: Sequence[Outcome]) -> tuple[Row, ...]:
    """The table: the whole search first, then the variants in the order they came."""
    variants = dict.fromkeys(item.without for item in outcomes)
    whole = {(item.task, item.seed): item.speedup for item in outcomes if not item.without}
    return tuple(_row(variant, outcomes, whole) for variant in variants)


def _row(
    variant: tuple[Part, ...],
    outcomes: Sequence[Outcome],
    whole: dict[tuple[str, int], float | None],
) -> Row:
    mine = [item for item in outcomes if item.without == variant]
    ran = [item.summary for item in mine if item.summary is not None]
    speedups = [item.speedup for item in mine if item.speedup]
    ratios = [
        item.speedup / base
        for item in mine
        if item.speedup and (base := whole.get((item.task, item.seed)))
    ]
    prices = [summary.usd for summary in ran if summary.usd is not None]
    return Row(
        without=variant,
        trials=len(mine),
        found=len(speedups),
        speedup=_geometric(speedups),
        against_whole=_geometric(ratios),
        lowest=min(ratios, default=None),
        highest=max(ratios, default=None),
        candidates=_mean([float(summary.candidates.timed) for summary in ran]),
        seconds=_mean([summary.seconds for summary in ran]),
        tokens=_mean([float(s.tokens.input + s.tokens.output) for s in ran]),
        usd=sum(prices) if prices else None,
    )


def _geometric(values: Sequence[float]) -> float | None:
    return exp(mean(log(value) for value in values)) if values else None


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else 0.0
