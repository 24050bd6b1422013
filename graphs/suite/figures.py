"""What a suite amounts to: shares, means and medians over its outcomes, and where its seconds went.

fast_p is KernelBench's measure (Ouyang et al., 2025): the share of *all* tasks whose result is
correct and more than p times as fast. Geometric means are over the tasks that have a correct
candidate of ours, and stand beside their number; what is left to the library is not a ratio of 1.
Tasks that a badge of the audit says prove little are summed up apart. Two result files can be held
against each other, task by task.

Seconds are told by part of the work and by step, as the median over the tasks. A step that a task
did not need counts as 0 there, so that the medians are of whole tasks; what the judge's account
does not have (agents, archive, waiting) is its own part. What was done beside other work is in the
account and not in the tasks' seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from math import exp, log
from statistics import median

from kernelwright.graphs.suite.outcome import BESIDE, COMPILE, EAGER, Outcome
from kernelwright.tools.types import Value

REST = "everything else"


class Share(Value):
    """One part of the work or one step of it; `cpu_s` and `seconds` are sums over all tasks."""

    name: str
    median_s: float
    largest_s: float
    seconds: float
    cpu_s: float
    times: int


class Pace(Value):
    """Parts in the order of a task, the steps of each the longest first."""

    tasks: int
    seconds: float
    parts: tuple[tuple[Share, tuple[Share, ...]], ...]


def pace(outcomes: Sequence[Outcome]) -> Pace | None:
    """Sum the accounts of those tasks up that have one; None where none has."""
    metered = [item for item in outcomes if item.phases]
    if not metered:
        return None
    steps = list(dict.fromkeys(phase.name for item in metered for phase in item.phases))
    parts = list(dict.fromkeys(name.split(":", maxsplit=1)[0] for name in steps))
    found = [(_share(part, metered, whole=True), _steps(part, steps, metered)) for part in parts]
    return Pace(
        tasks=len(metered),
        seconds=sum(item.seconds for item in metered),
        parts=(*found, (_rest(metered), ())),
    )


def _steps(part: str, steps: Sequence[str], metered: Sequence[Outcome]) -> tuple[Share, ...]:
    own = [_share(name, metered, whole=False) for name in steps if name.startswith(f"{part}:")]
    return tuple(sorted(own, key=lambda share: -share.seconds))


def _share(name: str, metered: Sequence[Outcome], *, whole: bool) -> Share:
    each = [
        [phase for phase in item.phases if (phase.part if whole else phase.name) == name]
        for item in metered
    ]
    seconds = [sum(phase.seconds for phase in phases) for phases in each]
    return Share(
        name=name,
        median_s=median(seconds),
        largest_s=max(seconds),
        seconds=sum(seconds),
        cpu_s=sum(phase.cpu_s for phases in each for phase in phases),
        times=sum(phase.times for phases in each for phase in phases),
    )


def _rest(metered: Sequence[Outcome]) -> Share:
    left = [
        max(0.0, item.seconds - sum(p.seconds for p in item.phases if p.part != BESIDE))
        for item in metered
    ]
    return Share(
        name=REST, median_s=median(left), largest_s=max(left), seconds=sum(left), cpu_s=0.0, times=0
    )


BEST, ALONE = "the better", "the better, single calls"
FAST_P = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0)

Ratio = Callable[[Outcome], float | None]
BASELINES: tuple[tuple[str, Ratio], ...] = (
    (EAGER, lambda item: item.over(EAGER)),
    (COMPILE, lambda item: item.over(COMPILE)),
    (BEST, lambda item: item.over_best),
    (ALONE, lambda item: item.over_best_alone),
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
        improved: How many may be called faster than every baseline, by the rule for all headlines.
        not_settled: How many are ahead by figures that settle nothing.
        clocks: What the times are of, with counts of comparisons.
        columns: Against eager, against compile, against the better, and against that by single
            calls on an idle device.
        floor_fraction_median: Over those with a candidate.
        beside: Which baselines the certified candidates were timed beside, with counts; what is
            not among them nobody compared with. `absent`: those that were asked for in vain.
        methods: How the best came about, with counts.
        precisions: In which precision, with counts.
        modes: How their plans are called, with counts.
        parted: How many were searched region by region.
        ends: How those ended that were not searched, with counts.
        seconds: For all of it.
    """

    tasks: int
    searched: int
    correct: int
    improved: int
    not_settled: int
    clocks: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...]
    floor_fraction_median: float | None
    beside: tuple[tuple[str, int], ...]
    absent: tuple[tuple[str, int], ...]
    methods: tuple[tuple[str, int], ...]
    precisions: tuple[tuple[str, int], ...]
    modes: tuple[tuple[str, int], ...]
    parted: int
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
        improved=sum(item.status == "improved" for item in outcomes),
        not_settled=sum(item.status == "not_settled" for item in outcomes),
        clocks=_counted([found.clock for item in outcomes for found in item.against]),
        columns=tuple(_column(name, ratio, outcomes) for name, ratio in BASELINES),
        floor_fraction_median=median(fractions) if fractions else None,
        beside=_counted([found.baseline for item in outcomes for found in item.against]),
        absent=_counted([name for item in outcomes for name in item.absent]),
        methods=_counted([_family(best.method) for best in bests]),
        precisions=_counted([best.precision for best in bests]),
        modes=_counted([best.mode for best in bests]),
        parted=sum(item.regions[0] > 0 for item in outcomes),
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


class Line(Value):
    """One task in both; ratios are over the better baseline, `change` is the second over the first.

    `apart` says that the intervals do not overlap: the change is more than the noise of each.
    """

    file: str
    first: float | None
    second: float | None
    change: float | None
    apart: bool


class Contrast(Value):
    """Both files: tasks in both, those in only one, and what keeps them from comparing.

    `change` is the geometric mean over the tasks that have a ratio in both.
    """

    lines: tuple[Line, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    change: float | None
    caveats: tuple[str, ...]


def contrast(first: Sequence[Outcome], second: Sequence[Outcome]) -> Contrast:
    """Match tasks by their file's name."""
    one = {item.name: item for item in first}
    two = {item.name: item for item in second}
    lines = tuple(_line(one[name], two[name]) for name in one if name in two)
    changes = [line.change for line in lines if line.change is not None]
    return Contrast(
        lines=lines,
        only_first=tuple(name for name in one if name not in two),
        only_second=tuple(name for name in two if name not in one),
        change=exp(sum(map(log, changes)) / len(changes)) if changes else None,
        caveats=_caveats(one, two),
    )


def _line(one: Outcome, two: Outcome) -> Line:
    before, after = one.hardest, two.hardest
    if before is None or after is None:
        return Line(
            file=one.name, first=one.over_best, second=two.over_best, change=None, apart=False
        )
    return Line(
        file=one.name,
        first=before.ratio,
        second=after.ratio,
        change=after.ratio / before.ratio,
        apart=after.ci95[0] > before.ci95[1] or after.ci95[1] < before.ci95[0],
    )


def _caveats(one: dict[str, Outcome], two: dict[str, Outcome]) -> tuple[str, ...]:
    """What differs besides the kernels."""
    both = [(one[name], two[name]) for name in one if name in two]
    sides = (tuple(one.values()), tuple(two.values()))
    found = [
        f"{name} differs: {' and '.join(', '.join(sorted(side)) for side in values)}"
        for name, values in (
            ("device", [_devices(side) for side in sides]),
            ("search", [{item.terms.search for item in side} for side in sides]),
            ("torch", [{item.terms.torch for item in side} for side in sides]),
            ("evidence", [{item.terms.evidence for item in side} for side in sides]),
            (
                "the hash of the judge's and the search's figures",
                [{item.terms.figures or "not kept" for item in side} for side in sides],
            ),
        )
        if values[0] != values[1]
    ]
    changed = [a.file for a, b in both if a.sha256 != b.sha256]
    if changed:
        found.append(f"{len(changed)} files are not the same in both, such as {changed[0]}")
    return tuple(found)


def _devices(outcomes: Iterable[Outcome]) -> set[str]:
    return {item.summary.hardware.name for item in outcomes if item.summary is not None}
