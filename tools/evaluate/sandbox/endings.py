"""What the end of a worker means: a verdict for a candidate, a refusal for a file."""

import signal

from kernelwright.tools.evaluate.messages import JudgeRequest
from kernelwright.tools.evaluate.sandbox.ended import Ended
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    Evaluation,
    Isolation,
    Refusal,
    StageTimes,
    Verdict,
    Verification,
)

_OUTSIDE_MEMORY = (signal.SIGSEGV, signal.SIGBUS)
_TOLD_LINES = 3


def evaluation_of(request: JudgeRequest, ended: Ended, isolation: Isolation) -> Evaluation:
    """The evaluation of a candidate during which the worker was lost."""
    stage = ended.stage
    words = stage.words if stage else "it was taken up"
    at_fault = stage is not None and stage.blame == "candidate"
    # No damage by chance writes a whole frame, so whoever did it, the result is worth nothing.
    forged = ended.how == "forged"
    damaged = " (after the candidate had run: it may have damaged memory)"
    after = "" if at_fault or forged else damaged
    eager = request.baselines.named("eager") if request.baselines else None
    usual = ""
    if ended.how == "timed_out" and eager and eager.measurement:
        usual = f"; PyTorch takes {eager.measurement.median_ms:.3g} ms"
    verification = Verification(
        verdict=verdict_of(ended) if at_fault or forged else Verdict.CRASHED,
        reason=f"the worker {ended.words} while {words}{after}{usual}{_said(ended)}",
        isolation=isolation,
    )
    return Evaluation(
        candidate=request.candidate.id,
        verification=verification,
        reports=request.built.reports,
        compiler_log=request.built.log,
        stages=StageTimes(compile_s=request.built.seconds),
    )


def not_compiled(candidate: Candidate, failure: CompileFailure, isolation: Isolation) -> Evaluation:
    """The evaluation of a candidate that never ran."""
    return Evaluation(
        candidate=candidate.id,
        verification=Verification(
            verdict=failure.verdict, reason=failure.message, isolation=isolation
        ),
        compiler_log=failure.log,
        stages=StageTimes(compile_s=failure.seconds),
    )


def isolated(evaluation: Evaluation, isolation: Isolation) -> Evaluation:
    """The evaluation with how its worker was kept apart, which the worker cannot know."""
    verification = evaluation.verification.model_copy(update={"isolation": isolation})
    return evaluation.model_copy(update={"verification": verification})


def accompanied(evaluation: Evaluation, strangers: int | None) -> Evaluation:
    """The evaluation with how many other processes used the device, as the parent saw it."""
    if strangers is None:
        return evaluation

    def seen(conditions: Conditions) -> Conditions:
        return conditions.model_copy(update={"other_processes": strangers})

    screen = evaluation.screen
    if screen is not None:
        screen = screen.model_copy(update={"conditions": seen(screen.conditions)})
    comparisons = tuple(
        item.model_copy(update={"conditions": seen(item.conditions)})
        for item in evaluation.comparisons
    )
    return evaluation.model_copy(update={"screen": screen, "comparisons": comparisons})


def verdict_of(ended: Ended) -> Verdict:
    """The verdict when the candidate is to blame."""
    if ended.how == "timed_out":
        return Verdict.TIMED_OUT
    if ended.how == "out_of_memory" or ended.signal is signal.SIGKILL:
        return Verdict.OUT_OF_MEMORY
    if ended.how == "forged":
        return Verdict.CHEATING
    return Verdict.ILLEGAL_ACCESS if ended.signal in _OUTSIDE_MEMORY else Verdict.CRASHED


def refusal_of(ended: Ended, doing: str) -> Refusal:
    """Why a user's file cannot be a task, when it took the worker with it."""
    return Refusal(sentence=f"The process {doing} {ended.words}.", detail=ended.output)


def _said(ended: Ended) -> str:
    """The last words of a worker that aborted, such as the allocator's complaint."""
    if ended.signal is not signal.SIGABRT:
        return ""
    lines = [line for line in ended.output.splitlines() if line and not line.startswith("  ")]
    return f": {' / '.join(lines[:_TOLD_LINES])[:300]}" if lines else ""
