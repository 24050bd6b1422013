"""Where a suite's seconds went: by part of the work and by step, the median over its tasks.

A step that a task did not need counts as 0 there, so that the medians are of whole tasks; what the
judge's account does not have (minds, archive, waiting) is its own part. What was done beside other
work is in the account and not in the tasks' seconds.
"""

from collections.abc import Sequence
from statistics import median

from kernelwright.graphs.suite.outcome import BESIDE, Outcome
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
