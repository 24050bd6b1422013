"""Who said what, when and on which evidence: a run told to someone who was not there."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelwright.agents.roles import ROLES
from kernelwright.graphs.run_view import RunView, fold
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
    amount,
    floor_words,
    milliseconds,
    one_line,
    plain,
    ratio,
    seconds,
)
from kernelwright.graphs.run_view.figures import (
    LABEL_OF,
    compared_words,
    region_words,
    regions_words,
    settings_words,
)
from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.archive import strategy_words
from kernelwright.tools.profile import by_importance
from kernelwright.tools.types import Analysis, Candidate, Evaluation, Evidence, Idea, Rank, Verdict
from kernelwright.ui.terminal.output import (
    asked_lines,
    asked_words,
    called_lines,
    called_words,
    evolved_lines,
    evolved_words,
    prediction_words,
    record_words,
)

# Who speaks, and what they say: a headline and the lines under it.
Saying = tuple[str, str, list[str]]

STYLES = {
    "tuner": "blue",
    "judge": "cyan",
    "search": "bold",
}


def trace(story: Story, console: Console) -> None:
    """Print every event as a saying, with the time since the beginning."""
    view = RunView()
    for event in story.events:
        view = fold(view, event)
        if isinstance(event, IdeasProposed):
            console.print(Text(f"round {event.round}", style="bold underline"))
        for who, words, lines in sayings(event, view, story):
            console.print(_saying(view.seconds_at(event.at), who, words, lines))


def _saying(at_s: float, who: str, words: str, lines: list[str]) -> Table:
    """When, who and what in columns, so that long words stay under each other."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=9, justify="right", no_wrap=True, style="dim")
    grid.add_column(width=8, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(
        f"{at_s:.1f} s",
        Text(who, STYLES.get(who) or ROLES.appearance(who).style),
        Text(plain(words)),
    )
    for line in lines:
        grid.add_row("", "", Text(plain(line), style="dim"))
    return grid


def sayings(event: Event, view: RunView, story: Story) -> Iterator[Saying]:
    """What an event says, and who says it; `view` is the run as it stood then.

    Candidates are called by their numbers, whatever the event calls them.
    """
    named = story.view.with_names
    for who, words, lines in _sayings(event, view, story):
        yield who, named(words), [named(line) for line in lines]


def _sayings(event: Event, view: RunView, story: Story) -> Iterator[Saying]:
    match event:
        case RunStarted():
            yield "search", _beginning(event), list(event.warnings)
        case BaselinesMeasured():
            yield "judge", "timed PyTorch itself", [_baseline(b) for b in _items(event)]
        case IdeasProposed():
            yield "planner", one_line(event.reasoning, 3000), []
            for idea in event.ideas:
                yield "planner", f"idea: {one_line(idea.title)}", _idea_lines(idea)
        case CandidateWritten():
            who = "tuner" if event.by == "tuner" else "coder"
            yield who, _written(event, view), _written_lines(event)
        case CandidateJudged():
            yield "judge", _judged(event), _judged_lines(event.evaluation)
        case BestImproved():
            yield "search", _improved(event, view), []
        case Profiled():
            told = event.headline or "nothing telling"
            yield "profiler", f"{event.candidate}: {one_line(told, 300)}", _profile_lines(event)
        case Critiqued():
            yield "critic", one_line(event.analysis.implies, 3000), _analysis_lines(event.analysis)
        case ModelCalled():
            yield event.role, asked_words(event), asked_lines(event)
        case ToolCalled():
            yield event.run.role, called_words(event), called_lines(event)
        case RoleAnswered():
            yield event.role, one_line(event.words, 3000), []
        case StrategyEvolved():
            yield "strategist", evolved_words(event), evolved_lines(event, story)
        case RoundFinished():
            why = f"; stopping because {event.why_stop}" if event.why_stop else ""
            best = f"the best then {_best(view)}" if view.best else "nothing correct yet"
            yield "search", f"round {event.round} is over, {best}{why}", []
        case FloorRevised():
            words = floor_words(event.floor_ms, event.floor_how)
            yield "judge", f"measured the device again: the floor is {words}", []
        case RegionsFound():
            words = regions_words(event.regions)
            parts = f"parted the model into {len(event.regions)} regions: {words}"
            yield "judge", parts if event.regions else words, []
        case RegionSearched():
            yield "search", f"region {region_words(event.region)}", []
        case Noted():
            yield "search", one_line(event.words, 400), []
        case Awaited():
            yield "search", one_line(event.words, 600), []
        case RunFinished():
            best = f"; {view.best_name} {_best(view)}" if view.best else ""
            yield "search", f"{view.headline}, after {seconds(event.summary.seconds)}{best}", []


def _beginning(event: RunStarted) -> str:
    verb = "resumed" if event.resumed else "begun"
    moves = f"{amount(event.bytes_moved, 'B')} and {amount(event.flops, 'FLOP')}"
    return (
        f"{verb}: {one_line(event.task)} on {one_line(event.hardware)}, {moves}, "
        f"floor {floor_words(event.floor_ms, event.floor_how)} ({event.isolation})"
    )


def _items(event: BaselinesMeasured) -> list[tuple[str, float | None, float | None, str]]:
    return [
        (
            item.name,
            item.measurement.median_ms if item.measurement else None,
            item.measurement.spread if item.measurement else None,
            item.failure,
        )
        for item in event.baselines.items
    ]


def _baseline(item: tuple[str, float | None, float | None, str]) -> str:
    name, median_ms, spread, failure = item
    if median_ms is None or spread is None:
        return f"{name}: could not run: {one_line(failure, 200)}"
    return f"{name}: {milliseconds(median_ms)}, 10-90 % band {spread:.0%} wide"


def _idea_lines(idea: Idea) -> list[str]:
    # A playbook's mechanism is a sentence; a model's is the plan that the coder follows.
    limit = 300 if idea.origin == "playbook" else 1200
    lines = [f"how: {one_line(idea.mechanism, limit)}", f"why: {one_line(idea.reason, limit)}"]
    if idea.predicted_ms is not None:
        lines.append(f"predicts {milliseconds(idea.predicted_ms)}; watch {one_line(idea.metric)}")
    if idea.risk:
        lines.append(f"risk: {one_line(idea.risk, 300)}")
    return lines


def _written(event: CandidateWritten, view: RunView) -> str:
    candidate = event.candidate
    what = {"coder": "wrote", "tuner": "set", "repair": f"repaired (attempt {event.repairs})"}
    return f"{what[event.by]} {_named(candidate)} for: {one_line(view.title(candidate.idea))}"


def _written_lines(event: CandidateWritten) -> list[str]:
    """What a model said of its candidate, and which way it went; the tuner says nothing new."""
    candidate = event.candidate
    if event.by == "tuner" or candidate.origin == "playbook":
        return []
    lines = [f"it says: {one_line(candidate.note, 400)}"] if candidate.note else []
    if candidate.strategies:
        lines.append(f"labels: {one_line(strategy_words(candidate.strategies), 240)}")
    if candidate.parents:
        lines.append(f"starts from {', '.join(candidate.parents)}")
    return lines


def _named(candidate: Candidate) -> str:
    settings = settings_words(candidate.settings)
    return f"{candidate.id} ({settings})" if settings else candidate.id


def _judged(event: CandidateJudged) -> str:
    evaluation = event.evaluation
    verdict = evaluation.verdict.words
    if evaluation.verdict is not Verdict.CORRECT:
        reason = one_line(evaluation.verification.reason, 240)
        return f"{evaluation.candidate}: {verdict}: {reason}"
    error = evaluation.verification.error_ratio
    label = f" ({LABEL_OF[event.effort]})" if event.effort else ""
    words = f"{evaluation.candidate}: {verdict}, {milliseconds(evaluation.median_ms)}{label}"
    return words if error is None else f"{words}, error {error:.2f} times PyTorch's"


def _judged_lines(evaluation: Evaluation) -> list[str]:
    return [
        f"against {item.baseline}: {compared_words(item)}, {item.pairs} pairs"
        for item in evaluation.comparisons
    ]


def _improved(event: BestImproved, view: RunView) -> str:
    """The best; by the event's own figures where it is all that is known."""
    if view.best is not None:
        return f"new best: {_best(view)}"
    over = ratio(event.best_baseline_ms / event.median_ms)
    best = f"{event.candidate} at {milliseconds(event.median_ms)}"
    return f"new best: {best}, {over} the best baseline"


def _best(view: RunView) -> str:
    assert view.best is not None
    assert view.best_figure is not None
    return f"{view.best.name} at {view.best_figure.words}"


def _profile_lines(event: Profiled) -> list[str]:
    lines = [f"says: {one_line(event.explanation, 1200)}"] if event.explanation else []
    symptoms = by_importance(event.symptoms)
    lines += [f"{symptom.name}: {one_line(symptom.words, 300)}" for symptom in symptoms]
    return lines + [_reading(item) for item in event.evidence]


def _reading(item: Evidence) -> str:
    if item.rank is Rank.UNAVAILABLE or item.value is None:
        return f"{item.name}: unavailable ({one_line(item.source, 120)})"
    rank = f"{item.rank.value}, {one_line(item.source, 80)}"
    return f"{item.name}: {item.value:.4g} {item.unit} ({rank})"


def _analysis_lines(analysis: Analysis) -> list[str]:
    lines = []
    for claim in analysis.claims:
        lines.append(f"{claim.faster} beats {claim.slower}: {one_line(claim.words, 300)}")
        lines += [f"  {one_line(number, 160)}" for number in claim.numbers]
    lines += [prediction_words(item) for item in analysis.predictions]
    record = record_words(analysis)
    return [*lines, f"earlier predictions: {record}"] if record else lines
