"""What a search amounts to: from its archive, with the judge's account of where time went.

What an export is made of is gathered from the archive here as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.agents.llm.client import spent_by
from kernelwright.graphs.run_view import counts_of, hardest_comparison
from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.archive import Archive, RunError, Standing, apart, ranked
from kernelwright.tools.export import ExportRefusedError, Material
from kernelwright.tools.types import Comparison, Evaluation, Phase
from kernelwright.tools.types.measurement import Outcome
from kernelwright.tools.types.run import (
    BaselineSummary,
    BestSummary,
    HardwareSummary,
    InputSummary,
    Status,
    Summary,
    TaskSummary,
)


def material_of(archive: Archive, candidate: str | None = None, *, forced: bool) -> Material:
    """A candidate with everything that an export says of it; the best one where none is named.

    Raises:
        RunError: When the run has no such candidate, or no baselines yet.
        ExportRefusedError: When no candidate is correct.
    """
    record = archive.record()
    if record.baselines is None:
        raise RunError(f"run {record.id} has not measured its baselines yet; resume it first")
    found = archive.candidate(candidate or _best(archive))
    evaluation = archive.evaluation(found.id)
    if evaluation is None:
        raise RunError(f"candidate {found.id} of run {record.id} was never judged")
    return Material(
        task=record.task,
        candidate=found,
        evaluation=evaluation,
        baselines=record.baselines,
        hardware=record.hardware,
        summary=record.summary,
        forced=forced,
    )


def _best(archive: Archive) -> str:
    """What the summary stands for, else the fastest that is correct so far."""
    summary = archive.record().summary
    if summary is not None and summary.best is not None:
        return summary.best.candidate
    standing = archive.best()
    if standing is None and (others := apart(archive.standings())):
        first = others[0]
        raise ExportRefusedError(
            f"run {archive.id} has no correct candidate in an allowed precision; "
            f"{first.candidate.id} {first.evaluation.verification.apart} (name it with --candidate "
            "and --force exports it)"
        )
    if standing is None:
        raise ExportRefusedError(f"run {archive.id} has no correct candidate to export")
    return standing.candidate.id


def summarise(
    context: SearchContext, *, rounds: int, stopped_because: str, ended: Status | None = None
) -> Summary:
    """The run's summary; `ended` is its status where something cut the search short."""
    record, standings = context.archive.record(), context.archive.standings()
    calls, winner = context.archive.calls(), choose(standings)
    tokens, usd = spent_by(calls)
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
        best=_best_summary(winner, context) if winner else None,
        candidates=counts_of(len(context.archive.candidates()), standings),
        rounds=rounds,
        seconds=context.archive.spent_s(),
        stopped_because=stopped_because,
        isolation=context.executor.isolation,
        tokens=tokens,
        usd=usd,
        calls=len(calls),
        models=tuple(dict.fromkeys(call.reply.model for call in calls if call.reply)),
        phases=_phases(context),
    )


def _phases(context: SearchContext) -> tuple[Phase, ...]:
    judge = context.executor
    return judge.spent(context.task.path) if judge.capabilities.metered else ()


def choose(standings: Sequence[Standing]) -> Standing | None:
    """The candidate that the run stands for: certified before anything else, then the fastest."""
    fastest = ranked(standings)
    certified = [item for item in fastest if item.effort == "certify"]
    return next(iter(certified or fastest), None)


def status(winner: Standing | None, standings: Sequence[Standing]) -> Status:
    """What may be claimed of the winner."""
    if winner is None:
        return "nothing_correct" if standings else "no_improvement"
    hardest = hardest_comparison(winner.evaluation)
    if winner.effort != "certify" or hardest is None:
        return "no_improvement"
    if hardest.outcome == "faster":
        return "improved"
    eager = _against(winner.evaluation, "eager")
    faster = eager is not None and eager.outcome == "faster"
    return "faster_than_eager" if faster else "no_improvement"


def _against(evaluation: Evaluation, baseline: str) -> Comparison | None:
    return next((item for item in evaluation.comparisons if item.baseline == baseline), None)


def _best_summary(winner: Standing, context: SearchContext) -> BestSummary | None:
    evaluation = winner.evaluation
    median_ms, odds = evaluation.median_ms, _odds(evaluation, context)
    if median_ms is None or odds is None:
        return None
    found = evaluation.verification
    return BestSummary(
        candidate=winner.candidate.id,
        median_ms=median_ms,
        speedup_vs_eager=odds.against_eager,
        speedup_vs_best_baseline=odds.ratio,
        ci95=odds.interval,
        floor_fraction=context.floor_ms / median_ms,
        error_ratio=found.error_ratio,
        coverage=found.coverage,
        method=found.method,
        precision=found.precision,
        verdict=found.verdict.value,
        outcome=odds.outcome,
    )


@dataclass(frozen=True)
class _Odds:
    """Ratios of baseline over candidate."""

    against_eager: float | None
    ratio: float
    interval: tuple[float, float]
    outcome: Outcome


def _odds(evaluation: Evaluation, context: SearchContext) -> _Odds | None:
    """Pair by pair where the candidate was compared, else what both spreads allow."""
    hardest = hardest_comparison(evaluation)
    if hardest is not None:
        eager = _against(evaluation, "eager")
        interval = (hardest.ci95_low, hardest.ci95_high)
        return _Odds(eager.ratio if eager else None, hardest.ratio, interval, hardest.outcome)
    # A search that was stopped early has only screened: the widest interval is the honest one.
    base, screen = context.baselines.best.measurement, evaluation.screen
    eager_alone = context.baselines.named("eager")
    if base is None or screen is None:
        return None
    known = eager_alone.measurement if eager_alone else None
    return _Odds(
        known.median_ms / screen.median_ms if known else None,
        base.median_ms / screen.median_ms,
        (base.p10_ms / screen.p90_ms, base.p90_ms / screen.p10_ms),
        "not distinguishable",
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
