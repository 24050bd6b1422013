"""A speed-up too good to be believed is measured again, in another process on other values.

The worse of the two counts. Where the second one does not find the candidate correct, nothing of
the first is kept.
"""

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Comparison, Evaluation, Verdict


def suspicious(evaluation: Evaluation, rules: Rules) -> bool:
    """Whether the ratio over the best baseline is above what is believed at once."""
    if evaluation.verdict is not Verdict.CORRECT or not evaluation.comparisons:
        return False
    return min(item.ratio for item in evaluation.comparisons) > rules.quarantine_ratio


def cautious(first: Evaluation, second: Evaluation) -> Evaluation:
    """The second evaluation, with the lower of both ratios for every baseline."""
    if second.verdict is not Verdict.CORRECT:
        return second
    before = {item.baseline: item for item in first.comparisons}
    kept = tuple(_lower(before.get(item.baseline, item), item) for item in second.comparisons)
    return second.model_copy(update={"comparisons": kept})


def _lower(first: Comparison, second: Comparison) -> Comparison:
    lower = min(first, second, key=lambda item: item.ratio)
    note = (
        f"above the quarantine's bound, so measured twice: {first.ratio:.3g} and "
        f"{second.ratio:.3g} in separate processes"
    )
    conditions = lower.conditions.noted(note)
    return lower.model_copy(update={"conditions": conditions})
