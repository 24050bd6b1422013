"""What is known of one candidate in numbers, by name: what a claim may cite and is checked against.

Times and ratios come from the judge; the rest are the profiler's readings, which follow from the
evaluation. Readings of one kernel are called `kernel.reading`; without the kernel's name, the
largest over all kernels is meant.
"""

from collections.abc import Iterable

from profiles.load import Hardware
from tools.nouns import Candidate, Evaluation, Evidence, Rank, Task
from tools.profile import evidence_for, reported


def known(
    candidate: Candidate,
    evaluation: Evaluation,
    task: Task | None = None,
    hardware: Hardware | None = None,
) -> tuple[Evidence, ...]:
    """Every number that is known of a candidate; readings of the device need task and hardware."""
    found = list(_timings(evaluation))
    if task is not None and hardware is not None:
        read = evidence_for(evaluation, candidate, task, hardware)
        found += [item for item in read if item.value is not None]
    else:
        found += reported(evaluation)
    return tuple(found)


def reading(found: Iterable[Evidence], name: str) -> float | None:
    """The number of that name; for a kernel's reading without the kernel, the largest."""
    values = [
        item.value
        for item in found
        if item.value is not None and (item.name == name or item.name.rpartition(".")[2] == name)
    ]
    return max(values, default=None)


def _timings(evaluation: Evaluation) -> Iterable[Evidence]:
    if evaluation.screen is not None:
        yield _measured("screen_ms", evaluation.screen.median_ms, "ms", "screening")
    if evaluation.comparisons and evaluation.median_ms is not None:
        yield _measured("precise_ms", evaluation.median_ms, "ms", "interleaved comparison")
    for item in evaluation.comparisons:
        yield _measured(f"speedup_vs_{item.baseline}", item.ratio, "x", "interleaved comparison")
    if evaluation.verification.error_ratio is not None:
        yield _measured("error_ratio", evaluation.verification.error_ratio, "", "verification")


def _measured(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.MEASURED, value=value, unit=unit, source=source)
