"""What a person sees on a terminal while a search runs.

`LiveProgress` draws the view of the run in place, and prints notes and new bests above it, so that
they stay in the scrollback; `PlainProgress` says each event in a line, for logs and pipes. Neither
asks anything of the search: events are all they know.
"""

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view import RunView, fold, folded
from kernelwright.graphs.run_view.events import (
    Awaited,
    BaselinesMeasured,
    BestImproved,
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
    count,
    dollars,
    floor_words,
    milliseconds,
    of_floor,
    one_line,
    ratio,
    seconds,
    tokens,
)
from kernelwright.graphs.run_view.figures import in_words, region_words, regions_words
from kernelwright.tools.types import Verdict
from kernelwright.ui.terminal.output import asked_words, called_words, evolved_words

# Of a note, so much: the reason why a result is wrong says where and by how much.
NOTE = 400


class Watcher(Protocol):
    """Shows events as they happen; a context manager that leaves the terminal tidy."""

    view: RunView

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the last state and let go of the terminal."""
        ...

    def recall(self, events: Iterable[Event]) -> None:
        """Take in what earlier sessions told, without showing it."""
        ...

    def show(self, event: Event) -> None:
        """Take in one event."""
        ...

    def say(self, words: str) -> None:
        """Say what no event tells: that a file is still being read."""
        ...


def watcher(stream: TextIO | None = None) -> Watcher:
    """Live on a terminal, lines elsewhere; on stderr by default, for results go to stdout."""
    stream = stream or sys.stderr
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)


class PlainProgress:
    """Writes a line for each event that moves the search on."""

    def __init__(self, stream: TextIO) -> None:
        self.view = RunView()
        self._stream = stream

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        self._stream.flush()

    def recall(self, events: Iterable[Event]) -> None:
        """Take in what earlier sessions told, without showing it."""
        self.view = folded(events).in_new_session()

    def say(self, words: str) -> None:
        """A line of its own."""
        self._stream.write(f"{words}\n")
        self._stream.flush()

    def show(self, event: Event) -> None:
        """Take in an event and say it, if it is worth a line."""
        self.view = fold(self.view, event)
        line = sentence(event, self.view)
        if line:
            self._stream.write(f"[{self.view.elapsed_s:6.1f} s] {line}\n")
            self._stream.flush()


def sentence(event: Event, view: RunView) -> str:
    """An event as one line; empty for those that only count."""
    match event:
        case RunStarted():
            verb = "goes on with" if event.resumed else "optimises"
            return (
                f"run {event.run} {verb} {one_line(event.task)} on {one_line(event.hardware)}; "
                f"floor {floor_words(event.floor_ms, event.floor_how)}; {event.isolation}"
            )
        case FloorRevised():
            return f"floor now {floor_words(event.floor_ms, event.floor_how)}"
        case BaselinesMeasured():
            return "baselines: " + ", ".join(
                f"{item.name} {milliseconds(item.measurement.median_ms)}"
                if item.measurement
                else f"{item.name} could not run ({one_line(item.failure, 60)})"
                for item in event.baselines.items
            )
        case IdeasProposed():
            ideas = "; ".join(one_line(in_words(idea.title), 60) for idea in event.ideas)
            told = ideas or one_line(event.reasoning, 120)
            return f"round {event.round}: {count(len(event.ideas), 'idea')}: {told}"
        case BestImproved():
            return _improved(event, view)
        case Profiled() if event.headline and event.headline in view.profiler_words:
            return f"profiler: {one_line(view.profiler_words, 240)}"
        case Critiqued():
            return f"critic: {one_line(view.with_names(event.analysis.implies), 240)}"
        case RoundFinished():
            judged, correct = len(view.standings), view.counts.correct
            end = f"; stopping: {one_line(event.why_stop)}" if event.why_stop else ""
            return f"round {event.round} done: {judged} judged, {correct} correct{end}"
        case Awaited():
            return one_line(event.words, 400)
        case ModelCalled():
            why = f": {one_line(event.failure, 200)}" if event.failure else ""
            return f"{event.role} {asked_words(event)}{why}"
        case ToolCalled():
            return f"{event.run.role} {called_words(event)}"
        case RoleAnswered():
            return f"{event.role}: {one_line(view.with_names(event.words), 160)}"
        case StrategyEvolved():
            return evolved_words(event)
        case RegionsFound():
            words = regions_words(event.regions)
            return f"{count(len(event.regions), 'region')}: {words}" if event.regions else words
        case RegionSearched():
            return f"region {one_line(region_words(event.region), 240)}"
        case Noted():
            return f"note: {one_line(view.with_names(event.words), NOTE)}"
        case RunFinished():
            return f"finished after {seconds(event.summary.seconds)}{_ended(view)}"
        case _:
            return ""


def _improved(event: BestImproved, view: RunView) -> str:
    """The best; by the event's own figures where it is all that is known."""
    if view.best is None or view.best_figure is None:
        over = event.best_baseline_ms / event.median_ms
        words, floor = f"{milliseconds(event.median_ms)}, {ratio(over)} the best baseline", ""
    else:
        words, floor = f"{view.best.name} {view.best_figure.words}", _of_floor(view)
    idea = view.best.candidate.idea if view.best else event.idea
    return f"{view.best_name} {words}{floor}: {one_line(view.with_names(view.title(idea)))}"


def _ended(view: RunView) -> str:
    """What it stands for in the end."""
    if view.best is None or view.best_figure is None:
        return ""
    return f": {view.best_name} {view.best.name} {view.best_words}"


def _of_floor(view: RunView) -> str:
    return f", {of_floor(view.floor_fraction)}" if view.floor_fraction else ""


BAR = 20


class LiveProgress:
    """Redraws the view of the run after every event."""

    def __init__(self, stream: TextIO) -> None:
        self.view = RunView()
        self._console = Console(file=stream, highlight=False)
        self._spinner = Spinner("dots")
        self._shown_at = time.monotonic()
        self._live = Live(
            console=self._console, refresh_per_second=8, transient=True, get_renderable=self._draw
        )

    def __enter__(self) -> Self:
        """Begin to show."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        self._live.stop()

    def recall(self, events: Iterable[Event]) -> None:
        """Take in what earlier sessions told, without showing it."""
        self.view = folded(events).in_new_session()

    def say(self, words: str) -> None:
        """A line above the view."""
        self._console.print(Text(words, style="dim"))

    def show(self, event: Event) -> None:
        """Take in an event; the next frame shows it."""
        self.view = fold(self.view, event)
        self._shown_at = time.monotonic()
        if isinstance(event, BestImproved | Noted | Awaited):
            style = "green" if isinstance(event, BestImproved) else "yellow"
            self._console.print(Text(sentence(event, self.view), style=style))

    def _draw(self) -> Panel:
        since_s = time.monotonic() - self._shown_at
        self._spinner.update(text=stage_line(self.view, self.view.elapsed_s + since_s))
        return Panel(
            Group(self._spinner, *headline(self.view), times(self.view), counts(self.view)),
            title=title(self.view),
            title_align="left",
            border_style="dim",
        )


def title(view: RunView) -> Text:
    """Task, device and run."""
    words = f"{one_line(view.task, 40)} on {one_line(view.hardware, 40)}"
    return Text(words if view.task else "Kernelwright", style="bold")


def stage_line(view: RunView, elapsed_s: float) -> Text:
    """Round, stage, idea and the time since the search began."""
    line = Text(f"round {view.round}  {view.stage}", style="cyan")
    if view.idea:
        line.append(f"  {one_line(view.with_names(view.idea_title), 70)}", style="default")
    line.append(f"  {seconds(elapsed_s)}", style="dim")
    return line


def headline(view: RunView) -> tuple[Text, ...]:
    """The profiler's most important sentence, where it looked at a candidate."""
    return (Text(f"profiler: {one_line(view.profiler_words, 240)}"),) if view.profiler_words else ()


def times(view: RunView) -> Table:
    """Eager, the best baseline, the best candidate and the floor, as bars to one scale."""
    rows = [
        ("eager", view.eager_ms, "dim"),
        ("best baseline", view.best_baseline_ms, "default"),
        (view.best_name, view.best_ms, "green"),
        ("floor", view.floor_ms, "dim"),
    ]
    longest = max((value for _, value, _ in rows if value), default=1.0)
    table = Table.grid(padding=(0, 1))
    for name, value, style in rows:
        bar = "━" * max(1, round(BAR * value / longest)) if value else ""
        table.add_row(
            Text(f"{name:>13}", style="dim"),
            Text(f"{milliseconds(value):>9}", style=style),
            Text(f"{bar:<{BAR}}", style=style),
            Text(remark(name, value, view), style=style),
        )
    return table


def remark(name: str, value: float | None, view: RunView) -> str:
    """What to say beside a time."""
    if value is None:
        return "not measured yet" if name != view.best_name else "nothing correct yet"
    figure = view.best_figure
    if name != view.best_name or figure is None:
        return ""
    over = f", {figure.over}" if figure.over else ""
    return f"{figure.label}{over}{_of_floor(view)}"


def counts(view: RunView) -> Text:
    """How many candidates there are and what the judge said."""
    line = Text(count(view.counts.written, "candidate"), style="bold")
    correct = view.counts.correct
    line.append(f"  {correct} correct", style="green" if correct else "dim")
    for verdict, number in view.by_verdict.most_common():
        if verdict is not Verdict.CORRECT:
            line.append(f"  {number} {verdict.words}", style="yellow")
    if view.questions:
        line.append(f"  {asked(view)}", style="dim")
    return line


def asked(view: RunView) -> str:
    """How much was asked of models, and what it cost."""
    cost = f", {dollars(view.usd)}" if view.usd is not None else ""
    return f"{count(view.questions, 'question')}, {tokens(view.tokens)}{cost}"
