"""A ratio that is too good is measured twice."""

from kernelwright.tools.evaluate.finalists import cautious, suspicious
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Comparison, Conditions, Evaluation, Verdict, Verification

HERE = Conditions(device="cpu", l2_flushed=False, input_sets=1)


def comparison(ratio: float) -> Comparison:
    return Comparison(
        baseline="eager", candidate_ms=1.0, baseline_ms=ratio, ratio=ratio, ci95_low=ratio,
        ci95_high=ratio, pairs=3, candidate_samples_ms=(1.0,), baseline_samples_ms=(ratio,),
        conditions=HERE,
    )  # fmt: skip


def evaluation(ratio: float, verdict: Verdict = Verdict.CORRECT) -> Evaluation:
    checked = Verification(verdict=verdict, reason="")
    return Evaluation(candidate="c", verification=checked, comparisons=(comparison(ratio),))


def test_too_good_is_measured_twice_and_the_worse_counts() -> None:
    assert suspicious(evaluation(12.0), Rules())
    assert not suspicious(evaluation(9.0), Rules())
    kept = cautious(evaluation(30.0), evaluation(3.0)).comparisons[0]
    assert kept.ratio == 3.0
    assert "30" in kept.conditions.notes[-1]
    wrong = cautious(evaluation(30.0), evaluation(3.0, Verdict.STALE_RESULT))
    assert wrong.verdict is Verdict.STALE_RESULT
