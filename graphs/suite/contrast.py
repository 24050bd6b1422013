"""Two result files held against each other, task by task."""

from collections.abc import Iterable, Sequence
from math import exp, log

from kernelwright.graphs.suite.outcome import Outcome
from kernelwright.tools.types import Value


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
    one = {item.file: item for item in first}
    two = {item.file: item for item in second}
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
            file=one.file, first=one.over_best, second=two.over_best, change=None, apart=False
        )
    return Line(
        file=one.file,
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
