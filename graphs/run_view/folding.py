"""How events become a view of a run, one at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from kernelwright.graphs.run_view.events import (
    Awaited,
    BaselinesMeasured,
    BestImproved,
    CandidateJudged,
    CandidateWritten,
    Critiqued,
    Event,
    FloorRevised,
    IdeasProposed,
    ModelCalled,
    Noted,
    Profiled,
    RegionSearched,
    RegionsFound,
    RoleAnswered,
    RoundFinished,
    RunFinished,
    RunStarted,
    StrategyEvolved,
    ToolCalled,
    one_line,
)
from kernelwright.graphs.run_view.view import CandidateView, RunView
from kernelwright.tools.archive import Author, Standing, Written
from kernelwright.tools.types import Analysis, Idea
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.run import TokenCounts

_WRITING: dict[Author, str] = {
    "coder": "writing kernels",
    "tuner": "tuning the best",
    "repair": "repairing a candidate",
}


def folded(events: Iterable[Event], view: RunView | None = None) -> RunView:
    """A view of all these events, from the beginning or after an earlier view."""
    view = view or RunView()
    for event in events:
        view = fold(view, event)
    return view


def completed(
    view: RunView,
    written: Sequence[Written],
    standings: Sequence[Standing],
    ideas: Sequence[Idea],
    analyses: Sequence[Analysis],
    begun: datetime,
) -> RunView:
    """The view with what the archive keeps and events do not tell.

    Old runs did not tell an evaluation's effort, and a crash may fall between keeping and telling.
    """
    known = dict(view.candidates)
    for item in written:
        if item.candidate.id not in known:
            number = len(known) + 1
            known[item.candidate.id] = CandidateView(
                number, item.candidate, item.round, view.latest or begun, item.author
            )
    for standing in standings:
        found = known[standing.candidate.id]
        numbered = standing.model_copy(update={"number": found.number})
        known[standing.candidate.id] = replace(found, standing=numbered)
    more = {idea.id: idea for idea in ideas if idea.id not in view.ideas}
    return replace(
        view,
        candidates=known,
        ideas={**view.ideas, **more},
        analyses=tuple(analyses) or view.analyses,
    )


def fold(view: RunView, event: Event) -> RunView:
    """The view after one more event."""
    view = replace(
        view,
        begun=view.begun or event.at,
        watched_from=view.watched_from or event.at,
        latest=event.at,
        round=max(view.round, event.round),
    )
    if not isinstance(event, Noted | RunFinished | Awaited) and view.waiting_for:
        view = replace(view, waiting_for="")
    match event:
        case RunStarted():
            return _begin(view, event)
        case BaselinesMeasured():
            return replace(view, baselines=event.baselines, stage="thinking of ideas")
        case IdeasProposed():
            return _propose(view, event)
        case CandidateWritten():
            return _write(view, event)
        case CandidateJudged():
            return _judge(view, event)
        case BestImproved():
            return _change(view, event.candidate, was_best=True)
        case Profiled():
            view = replace(view, stage="asking what bounds the best")
            return _change(view, event.candidate, profile=event)
        case Critiqued():
            analyses = (*view.analyses, event.analysis)
            return replace(view, stage="contrasting fast and slow", analyses=analyses)
        case RoundFinished():
            return _end_round(view, event)
        case ModelCalled():
            return _ask(view, event)
        case ToolCalled():
            return replace(view, stage=f"the {event.run.role} calls {one_line(event.run.tool, 40)}")
        case RoleAnswered():
            return replace(view, stage=f"asking the {event.role}")
        case StrategyEvolved():
            return replace(view, stage=f"rewriting what the {event.version.role} is told")
        case Awaited():
            return replace(view, stage="waiting for somebody outside", waiting_for=event.words)
        case FloorRevised():
            return replace(view, floor_ms=event.floor_ms, floor_how=event.floor_how)
        case RegionsFound():
            stage = "searching its regions" if event.regions else view.stage
            return replace(view, regions=event.regions, stage=stage)
        case RegionSearched():
            return _region(view, event.region)
        case Noted():
            return replace(view, notes=(*view.notes, one_line(event.words, 400)))
        case RunFinished():
            why = event.summary.stopped_because or view.stopped_because
            return replace(view, summary=event.summary, stage="finished", stopped_because=why)


def _region(view: RunView, region: RegionShown) -> RunView:
    known = (region if item.name == region.name else item for item in view.regions)
    return replace(view, regions=tuple(known))


def _begin(view: RunView, event: RunStarted) -> RunView:
    """A session begins: what the last one amounted to is no longer the end."""
    return replace(
        view,
        run=event.run,
        task=event.task,
        hardware=event.hardware,
        isolation=event.isolation,
        warnings=event.warnings or view.warnings,
        floor_ms=event.floor_ms,
        floor_how=event.floor_how,
        bytes_moved=event.bytes_moved,
        flops=event.flops,
        stage="going on where it stopped" if event.resumed else "timing PyTorch",
        stopped_because="",
        certifying=False,
        summary=None,
    )


def _propose(view: RunView, event: IdeasProposed) -> RunView:
    return replace(
        view,
        ideas={**view.ideas, **{idea.id: idea for idea in event.ideas}},
        proposals=(*view.proposals, event),
        stage="writing kernels",
        idea=event.ideas[0].id if event.ideas else "",
    )


def _write(view: RunView, event: CandidateWritten) -> RunView:
    view = replace(view, stage=_WRITING[event.by], idea=event.candidate.idea)
    if event.candidate.id in view.candidates:
        return view
    number = len(view.candidates) + 1
    made = CandidateView(
        number, event.candidate, event.round, event.at, event.by, event.repairs
    )  # fmt: skip
    return replace(view, candidates={**view.candidates, made.id: made})


def _judge(view: RunView, event: CandidateJudged) -> RunView:
    certifying = view.certifying or event.effort == "certify"
    stage = "certifying the best" if certifying else "judging candidates"
    view = replace(view, stage=stage, certifying=certifying)
    found = view.candidates.get(event.evaluation.candidate)
    if found is None:
        return view
    # Runs from before the effort was told: only a precise look has comparisons.
    effort = event.effort or ("precise" if event.evaluation.comparisons else "screen")
    judged = found.judged(event.evaluation, effort, event.at)
    candidates = {**view.candidates, judged.id: judged}
    return replace(view, candidates=candidates, idea=found.candidate.idea or view.idea)


def _change(
    view: RunView, candidate: str, *, was_best: bool = False, profile: Profiled | None = None
) -> RunView:
    found = view.candidates.get(candidate)
    if found is None:
        return view
    changed = replace(
        found, was_best=found.was_best or was_best, profile=profile or found.profile
    )  # fmt: skip
    return replace(view, candidates={**view.candidates, candidate: changed})


def _end_round(view: RunView, event: RoundFinished) -> RunView:
    return replace(
        view,
        round_ends={**view.round_ends, event.round: event.at},
        stage="certifying the best" if event.why_stop else "thinking of ideas",
        stopped_because=event.why_stop,
        certifying=bool(event.why_stop),
    )


def _ask(view: RunView, event: ModelCalled) -> RunView:
    asked, known = event.tokens, view.tokens
    return replace(
        view,
        questions=view.questions + 1,
        stage=f"the {event.role} thinks with {one_line(event.model or 'a model', 40)}",
        tokens=TokenCounts(input=known.input + asked.input, output=known.output + asked.output),
        usd=view.usd if event.usd is None else (view.usd or 0.0) + event.usd,
    )
