"""What a search amounts to: from its archive, with the judge's account of where time went.

What an export is made of is gathered from the archive here as well.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from kernelwright.agents.llm.client import spent_by
from kernelwright.graphs.run_view import RunView, counts_of, folded
from kernelwright.graphs.run_view.events import EVENT
from kernelwright.graphs.run_view.figures import best_baseline, choose, figure_of
from kernelwright.graphs.run_view.story import view_of
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.shapes import sized_result
from kernelwright.tools.archive import Archive, RunError, Standing
from kernelwright.tools.export import ExportRefusedError, Material, OwnBackward
from kernelwright.tools.hardware import Roof, roof_of
from kernelwright.tools.types import Baselines, Comparison, Evaluation, Phase, Verdict
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.measurement import Clock
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.run import (
    BaselineSummary,
    BestSummary,
    HardwareSummary,
    InputSummary,
    Status,
    Summary,
    TaskSummary,
)
from kernelwright.tools.types.value import Value

BACKWARD_TERM = "backward"


class BackwardSearch(Value):
    """What came of searching a run's backward: its run, or why there is none.

    `forward` is the run of the step's own forward, where it has one.
    """

    run: str = ""
    forward: str = ""
    backward: Backward | None = None
    why: str = ""


def material_of(archive: Archive, candidate: str | None = None, *, forced: bool) -> Material:
    """A candidate with everything that an export says of it; the best one where none is named.

    Raises:
        RunError: When the run has no such candidate.
        ExportRefusedError: When no candidate is correct, or there are no baselines yet.
    """
    record = archive.record()
    if record.baselines is None:
        raise ExportRefusedError(
            f"run {record.id} has not measured its baselines yet; resume it first"
        )
    view = view_of(archive)
    if candidate is None and (sized := _sized(archive, view, forced=forced)) is not None:
        return sized
    found = archive.candidate(
        _named(record.id, view, candidate) if candidate else _best(record.id, view)
    )
    evaluation, name = archive.evaluation(found.id), view.name_of(found.id)
    efforts = {item.candidate.id: item.effort for item in archive.standings()}
    if evaluation is None:
        raise RunError(f"{name} of run {record.id} was never judged")
    return Material(
        task=record.task,
        candidate=found,
        name=name,
        evaluation=evaluation,
        baselines=record.baselines,
        hardware=record.hardware,
        summary=record.summary,
        forced=forced,
        backward=own_backward(archive),
        effort=efforts.get(found.id),
    )


def _sized(archive: Archive, view: RunView, *, forced: bool) -> Material | None:
    """What serves more sizes than the best does, where that may be exported as the best may."""
    record, found = archive.record(), sized_result(archive)
    if found is None or found.candidate is None or found.evaluation is None:
        return None
    if record.baselines is None or view.best is None or view.best.id != found.winner:
        return None
    made = Material(
        task=record.task,
        candidate=found.candidate,
        name=f"{view.name_of(found.winner)} for {found.served.asked}",
        evaluation=found.evaluation,
        baselines=record.baselines,
        hardware=record.hardware,
        summary=record.summary,
        forced=forced,
        shapes=found.served.verified,
        backward=own_backward(archive),
    )
    return made if made.improved or forced else None


def own_backward(archive: Archive) -> OwnBackward | None:
    """The kernels for the gradients that a search behind this one found; None without any."""
    kept = archive.term(BACKWARD_TERM)
    found = BackwardSearch.model_validate_json(kept) if kept else BackwardSearch()
    if found.backward is None or not found.run:
        return None
    home = archive.folder.parent.parent
    backward = _part(found.run, home)
    forward = _part(found.forward, home) if found.forward else None
    if backward is None or (found.backward.forward and forward is None):
        return None
    return OwnBackward(found=found.backward, material=backward, forward=forward)


def _part(run: str, home: Path) -> Material | None:
    """The best of a run behind this one; None where it has none, or was deleted since.

    It stands for no claim of its own: whether a step gains by it is said beside the step.
    """
    try:
        inner = Archive.open(run, home)
    except RunError:
        return None
    try:
        return None if choose(inner.standings()) is None else material_of(inner, forced=True)
    finally:
        inner.close()


def _named(run: str, view: RunView, name: str) -> str:
    """The id of a candidate that is called by its number, as `v7`; any other name as it is."""
    if not re.fullmatch(r"v\d+", name.strip().lower()):
        return name
    for item in view.candidates.values():
        if item.name == name.strip().lower():
            return item.id
    raise RunError(f"run {run} has no {name}; it has v1 to v{len(view.candidates)}")


def _best(run: str, view: RunView) -> str:
    """What the summary stands for, else the fastest that is correct so far."""
    if view.best is not None:
        return view.best.id
    if view.apart:
        first = view.apart[0]
        why = first.evaluation.verification.apart if first.evaluation else ""
        raise ExportRefusedError(
            f"run {run} has no correct candidate in an allowed precision; {first.name} "
            f"{why} (name it with --candidate and --force exports it)"
        )
    raise ExportRefusedError(f"run {run} has no correct candidate to export")


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
        status=ended or status(winner, standings, record.baselines),
        baselines={
            item.name: BaselineSummary(
                median_ms=item.measurement.median_ms if item.measurement else None,
                latency_ms=item.latency_ms,
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
        regions=_regions(context.archive),
    )


def _regions(archive: Archive) -> tuple[RegionShown, ...]:
    kinds = {"regions_found", "region_searched"}
    told = (item for item in archive.events() if item.kind in kinds)
    return folded(EVENT.validate_json(item.payload) for item in told).regions


def _phases(context: SearchContext) -> tuple[Phase, ...]:
    judge = context.executor
    return judge.spent(context.task.path) if judge.capabilities.metered else ()


def status(
    winner: Standing | None, standings: Sequence[Standing], baselines: Baselines | None
) -> Status:
    """What may be claimed of the winner; of what was not certified, that nothing is settled."""
    certified = winner is not None and winner.effort == "certify"
    if not certified and any(map(_only_ran_late, standings)):
        return "timed_out"
    if winner is None:
        return "nothing_correct" if standings else "no_improvement"
    claim = winner.evaluation.claim
    if not certified or claim is None:
        return "not_settled" if _may_be_faster(winner, baselines) else "no_improvement"
    if claim.outcome == "faster":
        return "improved"
    if claim.outcome == "not settled":
        return "not_settled"
    eager = _against(winner.evaluation, "eager")
    faster = eager is not None and eager.outcome == "faster" and not eager.unsettled
    return "faster_than_eager" if faster else "no_improvement"


def _may_be_faster(winner: Standing, baselines: Baselines | None) -> bool:
    """Whether what is known of a candidate that was not certified leaves a gain open."""
    figure = figure_of(winner.evaluation, winner.effort, baselines)
    if figure is None or figure.over_best is None:
        return False
    if figure.baseline:
        return figure.outcome in ("faster", "not settled")
    return figure.over_best > 1.0


def _only_ran_late(standing: Standing) -> bool:
    """Whether a candidate had been correct, and a closer look at it did not end in time."""
    late = standing.evaluation.verdict is Verdict.TIMED_OUT
    return late and standing.effort != "screen"  # which only what was correct goes beyond


def _against(evaluation: Evaluation, baseline: str) -> Comparison | None:
    return next((item for item in evaluation.comparisons if item.baseline == baseline), None)


def _best_summary(winner: Standing, context: SearchContext) -> BestSummary | None:
    clock: Clock = "device" if context.hardware.kind == "cuda" else "wall"
    roof = roof_of(context.task, context.hardware)
    return best_summary(winner, context.baselines, context.floor_ms, clock, roof)


def best_summary(
    winner: Standing,
    baselines: Baselines | None,
    floor_ms: float,
    clock: Clock = "wall",
    roof: Roof | None = None,
) -> BestSummary | None:
    """The winner's figures for machines; None where there is nothing to compare them with.

    `clock` is what times are of that were not taken in turns.
    """
    figure = figure_of(winner.evaluation, winner.effort, baselines)
    if figure is None or figure.over_best is None or figure.interval is None:
        return None
    found = winner.evaluation.verification
    return BestSummary(
        candidate=winner.candidate.id,
        median_ms=figure.ms,
        speedup_vs_eager=figure.over_eager,
        speedup_vs_best_baseline=figure.over_best,
        ci95=figure.interval,
        floor_fraction=floor_ms / figure.ms,
        error_ratio=found.error_ratio,
        coverage=found.coverage,
        method=found.method,
        precision=found.precision,
        verdict=found.verdict.value,
        outcome=figure.outcome,
        claim=figure.claim,
        clock=figure.clock or clock,
        baseline=figure.baseline or best_baseline(baselines),
        latency=figure.latency,
        host_share=winner.evaluation.host_share,
        timed=figure.label,
        roof_fraction=roof.ms / figure.ms if roof else None,
        roof=roof.how if roof else "",
        mode=winner.candidate.mode,
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
