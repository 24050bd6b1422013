"""A run on a terminal: what was to be beaten, what beat it, who came next, what ideas brought."""

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view.events import (
    amount,
    count,
    floor_words,
    milliseconds,
    of_floor,
    of_roof,
    one_line,
    plain,
    ratio,
    seconds,
    shape,
)
from kernelwright.graphs.run_view.failures import failure_lines
from kernelwright.graphs.run_view.figures import (
    LABEL_OF,
    Figure,
    compared_words,
    figure_of,
    legend,
    region_words,
    settings_words,
)
from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.archive import Standing
from kernelwright.tools.evaluate.findings import timed, verified
from kernelwright.tools.profile import casts_doubt
from kernelwright.tools.types import Comparison, LedgerEntry, Rank, Task
from kernelwright.tools.types.outline import ModelRegions
from kernelwright.tools.types.run import BestSummary, Summary
from kernelwright.ui.terminal.output import by_role, record_words, spending

LEADERS = 10
# Regions of a smaller share of the whole are counted, not shown.
LEAST_SHARE = 0.01


def show(story: Story, console: Console, *, ids: bool = False) -> None:
    """Print all cards; with `ids` candidates have their ids beside their numbers."""
    console.print(task_card(story))
    console.print(result_card(story))
    if story.leaders or story.apart:
        console.print(leaderboard(story, ids=ids))
    if story.ledger:
        console.print(ledger_table(story))
    if story.calls:
        console.print(models_table(story))


def task_card(story: Story) -> Panel:
    """The task and the device in figures."""
    task = story.record.task
    grid = _grid()
    grid.add_row("file", Text(plain(task.path)))
    for spec in task.inputs:
        grid.add_row("input", Text(f"{plain(spec.name)}: {input_words(task, spec.name)}"))
    if task.weights:
        size = sum(weight.tensor.size_bytes for weight in task.weights)
        grid.add_row("weights", f"{len(task.weights)} tensors, {amount(size, 'B')}")
    grid.add_row("moves", f"{amount(task.bytes_moved, 'B')}, {amount(task.flops, 'FLOP')}")
    grid.add_row("device", Text(plain(story.record.hardware.name)))
    grid.add_row("floor", Text(floor_words(story.floor_ms, story.floor_how)))
    for badge in task.badges:
        style = "bold yellow" if badge.proves_little else "yellow"
        grid.add_row(badge.name.replace("_", " "), Text(one_line(badge.reason, 200), style=style))
    for warning in task.remarks:
        grid.add_row("warning", Text(one_line(warning, 200), style="yellow"))
    return Panel(grid, title=Text(plain(task.name)), title_align="left", border_style="dim")


def input_words(task: Task, name: str) -> str:
    """Shape and type of an input, or its value when it is no tensor."""
    spec = next(spec for spec in task.inputs if spec.name == name)
    if spec.tensor is None:
        return repr(spec.scalar)
    strided = ", strided" if spec.tensor.strides is not None else ""
    return f"{shape(spec.tensor.shape)} {spec.tensor.dtype.value}{strided}"


def result_card(story: Story) -> Panel:
    """What the search amounted to."""
    summary = story.summary
    if summary is None:
        words: RenderableType = Text(
            f"not finished; the search goes on with: kernelwright resume {story.record.id}"
        )
    else:
        words = Group(headline(story), result_grid(story, summary))
    return Panel(
        words, title=Text(f"run {story.record.id}"), title_align="left", border_style="dim"
    )


def headline(story: Story) -> Text:
    """The result in one line."""
    styles = {"improved": "bold green", "faster_than_eager": "bold yellow"}
    status = story.summary.status if story.summary else ""
    return Text(story.view.headline, styles.get(status, "bold"))


def result_grid(story: Story, summary: Summary) -> Table:
    """Times, error, effort."""
    grid = _grid()
    for name, baseline in summary.baselines.items():
        words = milliseconds(baseline.median_ms)
        grid.add_row(name, Text(words if baseline.median_ms else one_line(baseline.failure, 120)))
    best = summary.best
    if best is not None:
        grid.add_row("best", best_words(story, best))
        for name, words in comparison_rows(story, best):
            grid.add_row(name, words)
        grid.add_row("", of_floor(best.floor_fraction))
        if best.roof_fraction is not None:
            grid.add_row("", of_roof(best.roof_fraction, best.roof))
        for name, said in finding_rows(story, best):
            grid.add_row(name, Text(plain(said), "bold yellow" if name == "ranked apart" else ""))
        for name, said in bound_rows(story):
            grid.add_row(name, Text(plain(said)))
        if story.best is not None:
            title = story.view.with_names(story.title(story.best.candidate.idea))
            grid.add_row("idea", Text(one_line(title, 120)))
    for region in summary.regions:
        if region.state != "left alone" or region.share >= LEAST_SHARE:
            words = f"{region.share:.0%}, {region_words(region)}"
            grid.add_row("region", Text(one_line(words, 300)))
    made = summary.candidates
    grid.add_row(
        "tried",
        f"{made.written} written, {made.compiled} compiled, {made.correct} correct, "
        f"{made.timed} timed, in {count(summary.rounds, 'round')} and {seconds(summary.seconds)}",
    )
    for words in failure_lines(story.view) if best is None else ():
        grid.add_row("failed", Text(story.view.with_names(words), style="yellow"))
    if summary.models:
        grid.add_row("models", Text(one_line(", ".join(summary.models), 120)))
    if story.calls:
        grid.add_row("asked", spending(story.calls).words)
    last = story.analyses[-1] if story.analyses else None
    if last is not None and (record := record_words(last, "checked prediction")):
        grid.add_row("critic", record)
    if summary.stopped_because:
        grid.add_row("stopped", Text(one_line(summary.stopped_because, 600)))
    grid.add_row("isolation", Text(plain(summary.isolation.words)))
    if summary.status in {"waiting", "stopped"}:
        grid.add_row("go on with", f"kernelwright resume {summary.run}")
    if summary.export:
        grid.add_row("export", Text(plain(summary.export)))
    return grid


def best_words(story: Story, best: BestSummary) -> str:
    """The best's time, how that was taken, and its number."""
    figure = story.view.best_figure
    time = figure.time if figure else milliseconds(best.median_ms)
    return f"{time}, {story.view.name_of(best.candidate)}"


def finding_rows(story: Story, best: BestSummary) -> list[tuple[str, str]]:
    """The judge's findings on the best, each once; the run's isolation stands elsewhere."""
    if story.best is None:
        known = best.error_ratio is not None
        words = f"{best.error_ratio:.2f} times PyTorch's own, {best.precision}" if known else ""
        return [("error", words)] if words else []
    evaluation = story.best.evaluation
    rows = [*verified(evaluation.verification), *timed(evaluation)]
    if missing := evaluation.verification.not_verified:
        rows.append(("not verified", one_line("; ".join(missing), 300)))
    return rows


def bound_rows(story: Story) -> list[tuple[str, str]]:
    """The profiler's most important sentence; what bounds the best; what was not read and why."""
    if story.best is None:
        return []
    readings, symptoms = story.profiles.get(story.best.candidate.id, ((), ()))
    bounds = [item for item in symptoms if not casts_doubt(item)]
    told = [f"{item.name}: {one_line(item.words, 200)}" for item in bounds]
    gaps = [
        f"{item.name}: {one_line(item.source, 200)}"
        for item in readings
        if item.rank is Rank.UNAVAILABLE
    ]
    first = [("profiler", one_line(words, 240))] if (words := story.view.profiler_words) else []
    rows = [("bounded by" if number == 0 else "", words) for number, words in enumerate(told)]
    return first + rows + [("not measured", words) for words in gaps]


def comparison_rows(story: Story, best: BestSummary) -> list[tuple[str, str]]:
    """The best against each baseline, by the times of their own interleaved pairs."""
    found = story.best.evaluation.comparisons if story.best else ()
    if not found:
        low, high = best.ci95
        words = f"{ratio(best.speedup_vs_best_baseline)} the best baseline, not timed in turns"
        return [("", f"{words}: {low:.2f} to {high:.2f} by how far both vary")]
    return [(f"vs {item.baseline}", comparison_words(item)) for item in found]


def comparison_words(item: Comparison) -> str:
    """A comparison in a line."""
    times = f"{milliseconds(item.candidate_ms)} against {milliseconds(item.baseline_ms)}"
    return f"{compared_words(item)} ({times}, {item.pairs} pairs)"


def leaderboard(story: Story, *, ids: bool = False) -> RenderableType:
    """The one that the run stands for, then the fastest of the others, and what labels mean.

    Those of lower precision stand behind, as they do not compete.
    """
    table = Table(title="leaderboard", title_justify="left", title_style="bold", box=None)
    columns = ("candidate", "timed", "time", "vs baseline", "95 %", "error", "idea", "settings")
    for name in ("candidate", *(("id",) if ids else ()), *columns[1:]):
        table.add_column(name, header_style="dim", no_wrap=name in {"candidate", "id"})
    shown = (*story.leaders[:LEADERS], *story.apart[:LEADERS])
    for standing in shown:
        name, *rest = leader_row(story, standing)
        table.add_row(name, *([standing.candidate.id] if ids else []), *rest)
    return Group(table, Text(legend(LABEL_OF[item.effort] for item in shown), style="dim"))


def leader_row(story: Story, standing: Standing) -> tuple[Text | str, ...]:
    """One line of the leaderboard; who was not timed in turns has a ratio by times alone."""
    evaluation = standing.evaluation
    figure = figure_of(evaluation, standing.effort, story.baselines)
    error = evaluation.verification.error_ratio
    beside = f" {figure.baseline}" if figure and figure.baseline else ""
    return (
        f"v{standing.number}",
        judged_words(standing),
        milliseconds(evaluation.median_ms),
        f"{ratio(figure.over_best)}{beside}" if figure else "-",
        _interval(figure) if figure else "",
        f"{error:.2f}" if error is not None else "-",
        Text(one_line(story.view.with_names(story.title(standing.candidate.idea)), 48)),
        Text(settings_words(standing.candidate.settings), style="dim"),
    )


def judged_words(standing: Standing) -> str:
    """How closely it was looked at, and whether it is ranked apart."""
    found = standing.evaluation.verification
    return f"apart: {found.precision}" if found.apart else LABEL_OF[standing.effort]


def _interval(figure: Figure) -> str:
    """The interval of what was timed in turns; a first impression has none worth a column."""
    if figure.interval is None or not figure.baseline:
        return ""
    low, high = figure.interval
    return f"{low:.2f}-{high:.2f} {figure.doubt}".rstrip()


def ledger_table(story: Story) -> Table:
    """What ideas promised and what they did."""
    table = Table(title="ideas", title_justify="left", title_style="bold", box=None)
    for name in ("round", "idea", "predicted", "measured", "gain", "correct"):
        table.add_column(name, header_style="dim")
    for entry in story.ledger:
        table.add_row(
            str(entry.round),
            Text(one_line(story.view.with_names(story.title(entry.idea)), 60)),
            milliseconds(entry.predicted_ms),
            milliseconds(entry.measured_ms),
            gain_words(entry),
            f"{entry.correct} of {entry.candidates}",
        )
    return table


def models_table(story: Story) -> Table:
    """What each role asked, and what that took."""
    table = Table(title="models", title_justify="left", title_style="bold", box=None)
    for name in ("role", "questions", "no answer", "tokens in", "out", "USD", "waited"):
        table.add_column(name, header_style="dim")
    for item in by_role(story.calls):
        table.add_row(
            item.role,
            str(item.calls),
            str(item.failed),
            amount(item.tokens.input, "").strip(),
            amount(item.tokens.output, "").strip(),
            f"{item.usd:.4f}" if item.usd is not None else "-",
            seconds(item.seconds),
        )
    return table


def gain_words(entry: LedgerEntry) -> Text:
    """Best before over best after, green where it helped."""
    if entry.gain is None:
        word = "not tried" if not entry.candidates else "-" if entry.correct else "none correct"
        return Text(word, style="dim")
    return Text(ratio(entry.gain), style="green" if entry.gain > 1 else "default")


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def regions_table(found: ModelRegions) -> Table:
    """Classes of equal regions by their time, then what stays PyTorch's and why."""
    table = Table(title="where the time goes", title_justify="left", box=None, padding=(0, 2))
    for name in ("region", "stands", "share", "PyTorch", "operators"):
        right = name in ("share", "PyTorch")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "operators")
    small = [item for item in found.classes if item.share < LEAST_SHARE]
    for item in sorted(found.classes, key=lambda one: -one.time_ms):
        if item not in small:
            took = milliseconds(item.time_ms)
            count = times_words(len(item.regions))
            table.add_row(item.name, count, f"{item.share:.0%}", took, Text(item.words))
    for kind in found.left:
        if kind.share >= LEAST_SHARE:
            took, words = milliseconds(kind.time_ms), f"{kind.words}: {kind.why}"
            count = times_words(kind.calls)
            table.add_row("-", count, f"{kind.share:.0%}", took, Text(words, "dim"))
    if small:
        words, share = (
            f"{len(small)} more, each below {LEAST_SHARE:.0%}",
            sum(s.share for s in small),
        )
        table.add_row("", "", f"{share:.0%}", "", Text(words, "dim"))
    return table


def times_words(count: int) -> str:
    """`23 times`, `once`."""
    return "once" if count == 1 else f"{count} times"
