"""What a search amounts to, from nothing but its archive."""

from collections.abc import Sequence

from graphs.context import SearchContext
from tools.archive import Standing, ranked
from tools.nouns import Comparison, Evaluation, Verdict
from tools.nouns.run import (
    BaselineSummary,
    BestSummary,
    CandidateCounts,
    HardwareSummary,
    InputSummary,
    Status,
    Summary,
    TaskSummary,
)

NOT_COMPILED = frozenset({Verdict.INVALID_PLAN, Verdict.COMPILE_ERROR})


def summarise(
    context: SearchContext, *, rounds: int, stopped_because: str, ended: Status | None = None
) -> Summary:
    """The run's summary; `ended` is its status where something cut the search short."""
    record, standings = context.archive.record(), context.archive.standings()
    winner = choose(standings)
    return Summary(
        run=record.id,
        task=_task(context),
        hardware=HardwareSummary(name=record.hardware.name, kind=record.hardware.kind),
        status=ended or status(winner, standings),
        baselines={
            item.name: BaselineSummary(
                median_ms=item.measurement.median_ms if item.measurement else None,
                failure=item.failure,
            )
            for item in (record.baselines.items if record.baselines else ())
        },
        best=_best(winner, context.floor_ms) if winner else None,
        candidates=_counts(context, standings),
        rounds=rounds,
        seconds=context.archive.spent_s(),
        stopped_because=stopped_because,
        isolation=context.executor.isolation,
    )


def choose(standings: Sequence[Standing]) -> Standing | None:
    """The candidate that the run stands for: certified before anything else, then the fastest."""
    fastest = ranked(standings)
    certified = [item for item in fastest if item.effort == "certify"]
    return next(iter(certified or fastest), None)


def status(winner: Standing | None, standings: Sequence[Standing]) -> Status:
    """What may be claimed of the winner."""
    if winner is None:
        return "nothing_correct" if standings else "no_improvement"
    hardest = against_best(winner.evaluation)
    if winner.effort != "certify" or hardest is None:
        return "no_improvement"
    if hardest.ci95_low > 1.0:
        return "improved"
    eager = _against(winner.evaluation, "eager")
    faster = eager is not None and eager.ci95_low > 1.0
    return "faster_than_eager" if faster else "no_improvement"


def against_best(evaluation: Evaluation) -> Comparison | None:
    """The comparison with the baseline that is hardest to beat; None when there was none."""
    return min(evaluation.comparisons, key=lambda item: item.ratio, default=None)


def _against(evaluation: Evaluation, baseline: str) -> Comparison | None:
    return next((item for item in evaluation.comparisons if item.baseline == baseline), None)


def _best(winner: Standing, floor_ms: float) -> BestSummary | None:
    evaluation, hardest = winner.evaluation, against_best(winner.evaluation)
    median_ms = evaluation.median_ms
    if median_ms is None or hardest is None:
        return None
    eager = _against(evaluation, "eager")
    found = evaluation.verification
    return BestSummary(
        candidate=winner.candidate.id,
        median_ms=median_ms,
        speedup_vs_eager=eager.ratio if eager else None,
        speedup_vs_best_baseline=hardest.ratio,
        ci95=(hardest.ci95_low, hardest.ci95_high),
        floor_fraction=floor_ms / median_ms,
        error_ratio=found.error_ratio,
        coverage=found.coverage,
        method=found.method,
        precision=found.precision,
        verdict=found.verdict.value,
    )


def _task(context: SearchContext) -> TaskSummary:
    task = context.task
    return TaskSummary(
        name=task.name,
        inputs=tuple(
            InputSummary(shape=item.tensor.shape, dtype=item.tensor.dtype.value)
            for item in task.inputs
            if item.tensor is not None
        ),
        bytes=task.bytes_moved,
        flops=task.flops,
        floor_ms=context.floor_ms,
    )


def _counts(context: SearchContext, standings: Sequence[Standing]) -> CandidateCounts:
    judged = [item.evaluation for item in standings]
    return CandidateCounts(
        written=len(context.archive.candidates()),
        compiled=sum(item.verdict not in NOT_COMPILED for item in judged),
        correct=sum(item.verdict is Verdict.CORRECT for item in judged),
        timed=sum(item.median_ms is not None for item in judged),
    )
