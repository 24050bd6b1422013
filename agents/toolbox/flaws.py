"""What keeps a kernel that is right from being fast, as far as the compiler and a clock can tell.

A flaw is a sentence for whoever wrote the kernel: it spills, the compiler made its tensor
instructions wait for each other, or it takes longer than its idea promised.
"""

from collections.abc import Iterator

from kernelwright.agents.prompting.cards import milliseconds
from kernelwright.agents.toolbox.code_words import serialised
from kernelwright.tools.types import Evaluation, Verdict

# A prediction is missed by more than what models usually are off by.
_MISSED = 1.3
# Worth another try is what comes this near to the best, or nearer still than it promised to be.
_PROMISING = 1.5


def flaws(evaluation: Evaluation, predicted_ms: float | None) -> tuple[str, ...]:
    """Everything that is known to hold a right candidate back; () where nothing is."""
    if evaluation.verdict is not Verdict.CORRECT or evaluation.median_ms is None:
        return ()
    return tuple(_flaws(evaluation, evaluation.median_ms, predicted_ms))


def is_promising(evaluation: Evaluation, best_ms: float | None, predicted_ms: float | None) -> bool:
    """Whether it is near the best, or would lead if it kept what was promised of it."""
    taken_ms = evaluation.median_ms
    if taken_ms is None or evaluation.verification.apart:
        return False
    if best_ms is None or taken_ms <= _PROMISING * best_ms:
        return True
    return predicted_ms is not None and predicted_ms < best_ms


def _flaws(evaluation: Evaluation, taken_ms: float, predicted_ms: float | None) -> Iterator[str]:
    for report in evaluation.reports:
        if report.spill_bytes:
            registers = f" with {report.registers} registers a thread" if report.registers else ""
            yield (
                f"`{report.kernel}` spills: {report.spill_bytes} bytes go to memory and back"
                f"{registers}"
            )
    if waiting := serialised(evaluation.compiler_log):
        yield f"the compiler made tensor instructions wait for each other: {waiting[:300]}"
    if predicted_ms and taken_ms > _MISSED * predicted_ms:
        yield (
            f"it takes {milliseconds(taken_ms)}, {taken_ms / predicted_ms:.2g} times what was "
            f"predicted ({milliseconds(predicted_ms)})"
        )
