"""Whom a certification cannot leave out: those that the precise look could not tell apart."""

import pytest

from kernelwright.tools.evaluate.finalists import rivals, settles
from kernelwright.tools.types import (
    Comparison,
    Conditions,
    Evaluation,
    Measurement,
    Verdict,
    Verification,
)


def compared(low: float, high: float) -> Evaluation:
    comparison = Comparison(
        baseline="eager", candidate_ms=1.0, baseline_ms=1.0, ratio=(low * high) ** 0.5,
        ci95_low=low, ci95_high=high, pairs=10, candidate_samples_ms=(1.0,),
        baseline_samples_ms=(1.0,),
        conditions=Conditions(device="cpu", l2_flushed=True, input_sets=1),
    )  # fmt: skip
    checked = Verification(verdict=Verdict.CORRECT, reason="")
    return Evaluation(candidate="c", verification=checked, comparisons=(comparison,))


def screened() -> Evaluation:
    return Evaluation(candidate="c", verification=Verification(verdict="correct", reason=""))


def test_rivals_are_those_whose_intervals_meet_the_firsts() -> None:
    first = compared(1.5, 1.6)
    assert rivals([first, compared(1.45, 1.52), compared(1.2, 1.3)], "eager") == 2
    assert rivals([first, compared(1.2, 1.3), compared(1.45, 1.52)], "eager") == 1
    assert rivals([first, compared(1.5, 1.55), compared(1.4, 1.51)], "eager") == 3


def test_what_was_only_screened_is_nobodys_rival() -> None:
    assert rivals([compared(1.5, 1.6), screened()], "eager") == 1
    assert rivals([screened(), screened()], "eager") == 1
    assert rivals([], "eager") == 1


@pytest.mark.parametrize(
    ("low", "high", "screened_ms", "ends"),
    [
        (1.10, 1.12, 1.0, True),  # ahead
        (1.10, 1.12, 1.6, True),
        (0.90, 0.92, 1.1, True),  # behind, and screened well enough
        (0.90, 0.92, 1.6, False),
        (0.90, 0.92, 0.6, False),
        (0.90, 0.92, None, True),
        (0.98, 1.02, 1.0, False),  # not told apart
    ],
)
def test_one_that_is_behind_ends_the_looking_unless_its_screening_was_far_off(
    low: float, high: float, screened_ms: float | None, ends: bool
) -> None:
    conditions = Conditions(device="cpu", l2_flushed=True, input_sets=1)
    alone = Measurement(median_ms=1, p10_ms=1, p90_ms=1, samples_ms=(1,), conditions=conditions)
    certified = compared(low, high).model_copy(update={"screen": alone})
    assert certified.median_ms == 1.0
    assert settles(certified, screened_ms) is ends
