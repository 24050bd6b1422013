"""What a suite amounts to: shares, means and medians over its outcomes.

fast_p is KernelBench's measure (Ouyang et al., 2025): the share of *all* tasks whose result is
correct and more than p times as fast. Geometric means are over the tasks that have a correct
candidate of ours, and stand beside their number; what is left to the library is not a ratio of 1.
Tasks that a badge of the audit says prove little are summed up apart.
"""

from collections.abc import Callable, Sequence
from math import exp, log
from statistics import median

from kernelwright.graphs.suite.outcome import COMPILE, EAGER, Outcome
from kernelwright.tools.types import Value

BEST = "the better"
FAST_P = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0)

Ratio = Callable[[Outcome], float | None]
BASELINES: tuple[tuple[str, Ratio], ...] = (
    (EAGER, lambda item: item.over(EAGER)),
    (COMPILE, lambda item: item.over(COMPILE)),
    (BEST, lambda item: item.over_best),
)


class Column(Value):
    """The suite against one baseline; `fast_p` are shares of all tasks, p with its share."""

    baseline: str
    compared: int
    geometric_mean: float | None
    median: float | None
    lowest: float | None
    fast_p: tuple[tuple[float, float], ...]


class Figures(Value):
    """A whole suite, or a part of it.

    Attributes:
        tasks: How many files.
        searched: How many of them came to the end of their search.
        correct: How many have a correct candidate of ours.
        improved: How many are ahead of every baseline with the interval above 1.
        columns: Against eager, against compile, against the better.
        floor_fraction_median: Over those with a candidate.
        beside: Which baselines the certified candidates were timed beside, with counts; what is
            not among them nobody compared with.
        methods: How the best came about, with counts.
        precisions: In which precision, with counts.
        ends: How those ended that were not searched, with counts.
        seconds: For all of it.
    """

    tasks: int
    searched: int
    correct: int
    improved: int
    columns: tuple[Column, ...]
    floor_fraction_median: float | None
    beside: tuple[tuple[str, int], ...]
    methods: tuple[tuple[str, int], ...]
    precisions: tuple[tuple[str, int], ...]
    ends: tuple[tuple[str, int], ...]
    seconds: float


def figures(outcomes: Sequence[Outcome]) -> Figures:
    """Sum outcomes up."""
    bests = [item.summary.best for item in outcomes if item.summary and item.summary.best]
    fractions = [item.floor_fraction for item in outcomes if item.floor_fraction is not None]
    return Figures(
        tasks=len(outcomes),
        searched=sum(item.ended == "searched" for item in outcomes),
        correct=sum(item.over_best is not None for item in outcomes),
        improved=sum(item.hardest is not None and item.hardest.ci95[0] > 1.0 for item in outcomes),
        columns=tuple(_column(name, ratio, outcomes) for name, ratio in BASELINES),
        floor_fraction_median=median(fractions) if fractions else None,
        beside=_counted([found.baseline for item in outcomes for found in item.against]),
        methods=_counted([_family(best.method) for best in bests]),
        precisions=_counted([best.precision for best in bests]),
        ends=_counted([item.ended for item in outcomes if item.ended != "searched"]),
        seconds=sum(item.seconds for item in outcomes),
    )


def sound(outcomes: Sequence[Outcome]) -> tuple[tuple[Outcome, ...], tuple[Outcome, ...]]:
    """The tasks that prove something, and those of which a badge says that they prove little.

    Badges that are only good to know (updated buffers, dead operators) leave a task where it is.
    """
    return (
        tuple(item for item in outcomes if item.doubt is None),
        tuple(item for item in outcomes if item.doubt is not None),
    )


def _column(name: str, ratio: Ratio, outcomes: Sequence[Outcome]) -> Column:
    ratios = [found for item in outcomes if (found := ratio(item)) is not None]
    every = max(len(outcomes), 1)
    return Column(
        baseline=name,
        compared=len(ratios),
        geometric_mean=exp(sum(map(log, ratios)) / len(ratios)) if ratios else None,
        median=median(ratios) if ratios else None,
        lowest=min(ratios, default=None),
        fast_p=tuple((p, sum(found > p for found in ratios) / every) for p in FAST_P),
    )


def _family(method: str) -> str:
    """The label without the operators that it lists."""
    return method.split(" (")[0]


def _counted(names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return tuple(sorted(counts.items(), key=lambda item: -item[1]))
