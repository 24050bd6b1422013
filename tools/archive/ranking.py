"""Which of two correct candidates is the faster one.

Compared pair by pair with eager, a candidate has a ratio that a drifting clock or a busy host
spoils far less than its time. So candidates with such a ratio rank by it, and before those that
were only screened, which rank by time.
"""

from collections.abc import Iterable

from kernelwright.tools.archive.records import Standing
from kernelwright.tools.types import Evaluation, Verdict

YARDSTICK = "eager"


def ratio(evaluation: Evaluation) -> float | None:
    """Eager's time over the candidate's, pair by pair; None when they were not compared."""
    found = (item.ratio for item in evaluation.comparisons if item.baseline == YARDSTICK)
    return next(found, None)


def ranked(standings: Iterable[Standing]) -> list[Standing]:
    """The correct and timed candidates, the fastest first; the earlier one of equals.

    Those that compute in less than the task asks and the person allowed are not among them.
    """
    return _in_order(item for item in standings if not item.evaluation.verification.apart)


def apart(standings: Iterable[Standing]) -> list[Standing]:
    """The correct ones of lower precision, likewise in order: a ranking of their own."""
    return _in_order(item for item in standings if item.evaluation.verification.apart)


def _in_order(standings: Iterable[Standing]) -> list[Standing]:
    correct = [item for item in standings if is_timed(item.evaluation)]
    return sorted(correct, key=lambda item: (*_order(item.evaluation), item.number))


def is_timed(evaluation: Evaluation) -> bool:
    """Whether the candidate is correct and its time is known."""
    return evaluation.verdict is Verdict.CORRECT and evaluation.median_ms is not None


def _order(evaluation: Evaluation) -> tuple[int, float]:
    against = ratio(evaluation)
    return (1, evaluation.median_ms or 0.0) if against is None else (0, -against)
