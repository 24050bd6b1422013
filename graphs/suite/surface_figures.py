"""What policies came to on recorded settings spaces: gaps to the optimum, and what parts are worth.

A gap is the logarithm of the best time found over the best time recorded: about the share of time
that is left, 0 at the optimum. Means are over repetitions, then over loops, so that every loop
counts alike. Intervals of gaps are bootstrapped over repetitions within each loop: how far chance
in the searches and their timings moves a figure on these loops. Those of differences between
policies draw the loops anew as well: what other loops of the kind would show. A loop is solved
where its median repetition ends within 3 % of the optimum.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, log
from statistics import fmean, median

from kernelwright.graphs.suite.surface_search import WHOLE, Trail
from kernelwright.tools.types import Value

BUDGETS = (16, 32, 64)
WITHIN = 0.03
_DRAWS = 1000
# What a search that found nothing correct counts as: ten times the optimum.
_NOTHING = log(10.0)


class Estimate(Value):
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two intervals have anything in common."""
        return self.low <= other.high and other.low <= self.high


class Standing(Value):
    """A policy at one budget: its gap in per cent, and the share of loops that it solved."""

    policy: str
    evaluations: int
    gap: Estimate
    solved: float
    loops: int
    repetitions: int


class Worth(Value):
    """What a part is worth at one budget, in per cent of time; above 0 the search gains by it.

    `helped` and `harmed` are loops on which the difference's own interval excludes 0.
    """

    policy: str
    evaluations: int
    gain: Estimate
    helped: tuple[str, ...]
    harmed: tuple[str, ...]
    loops: int


Gaps = Mapping[str, Sequence[float]]  # of one policy at one budget, by loop


def gaps(
    trails: Iterable[Trail], best_ms: Mapping[str, float], evaluations: int
) -> dict[str, Gaps]:
    """By policy and loop, the gap of every repetition, as a log ratio."""
    found: dict[str, dict[str, list[float]]] = {}
    for trail in sorted(trails, key=lambda trail: trail.seed):
        reached_ms = trail.best_ms(evaluations)
        gap = log(reached_ms / best_ms[trail.loop]) if reached_ms < inf else _NOTHING
        found.setdefault(trail.policy, {}).setdefault(trail.loop, []).append(gap)
    return dict(found)


def standing(policy: str, evaluations: int, found: Gaps) -> Standing:
    """A policy's figures."""
    solved = fmean(median(of) <= log(1 + WITHIN) for of in found.values())
    return Standing(
        policy=policy,
        evaluations=evaluations,
        gap=_percent(_bootstrapped(list(found.values()))),
        solved=solved,
        loops=len(found),
        repetitions=sum(map(len, found.values())),
    )


def worth(policy: str, evaluations: int, whole: Gaps, without: Gaps) -> Worth:
    """What a search loses without a part, seed by seed."""
    lost = {
        loop: [less - full for full, less in zip(whole[loop], of, strict=False)]
        for loop, of in without.items()
        if loop in whole
    }
    alone = {loop: _bootstrapped([of]) for loop, of in lost.items()}
    return Worth(
        policy=policy,
        evaluations=evaluations,
        gain=_percent(_bootstrapped(list(lost.values()), draw_groups=True)),
        helped=tuple(loop for loop, item in alone.items() if item.low > 0),
        harmed=tuple(loop for loop, item in alone.items() if item.high < 0),
        loops=len(lost),
    )


def standings(
    trails: Sequence[Trail], best_ms: Mapping[str, float], budgets: Sequence[int] = BUDGETS
) -> tuple[tuple[Standing, ...], tuple[Worth, ...]]:
    """Every policy at every budget, and every other policy beside the whole search."""
    table, parts = [], []
    for evaluations in budgets:
        found = gaps(trails, best_ms, evaluations)
        table += [standing(policy, evaluations, of) for policy, of in found.items()]
        if whole := found.get(WHOLE):
            others = ((policy, of) for policy, of in found.items() if policy != WHOLE)
            parts += [worth(policy, evaluations, whole, of) for policy, of in others]
    return tuple(table), tuple(parts)


def _bootstrapped(groups: Sequence[Sequence[float]], *, draw_groups: bool = False) -> Estimate:
    """The mean over groups of their means, with values, and groups where asked, drawn anew."""
    dice = random.Random(0)

    def drawn() -> float:
        chosen = dice.choices(groups, k=len(groups)) if draw_groups else groups
        return fmean(fmean(dice.choices(of, k=len(of))) for of in chosen)

    means = sorted(drawn() for _ in range(_DRAWS))
    at = int(0.025 * _DRAWS)
    return Estimate(mean=fmean(map(fmean, groups)), low=means[at], high=means[-1 - at])


def _percent(item: Estimate) -> Estimate:
    low, mean, high = (100 * (exp(value) - 1) for value in (item.low, item.mean, item.high))
    return Estimate(mean=mean, low=low, high=high)
