"""Progress in lines, for logs and pipes: what a person would want to read afterwards."""

from collections.abc import Iterable
from typing import Self, TextIO

from graphs.events import (
    Awaited,
    BaselinesMeasured,
    BestImproved,
    Critiqued,
    Event,
    IdeasProposed,
    ModelCalled,
    Noted,
    RoleAnswered,
    RoundFinished,
    RunFinished,
    RunStarted,
    StrategyEvolved,
)
from graphs.run_view import RunView, fold, folded
from graphs.words import count, milliseconds, one_line, percent, ratio, seconds
from ui.talk import asked_words, evolved_words


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
                f"floor {milliseconds(event.floor_ms)}; {event.isolation}"
            )
        case BaselinesMeasured():
            return "baselines: " + ", ".join(
                f"{item.name} {milliseconds(item.measurement.median_ms)}"
                if item.measurement
                else f"{item.name} could not run ({one_line(item.failure, 60)})"
                for item in event.baselines.items
            )
        case IdeasProposed():
            ideas = "; ".join(one_line(idea.title, 60) for idea in event.ideas)
            return f"round {event.round}: {count(len(event.ideas), 'idea')}: {ideas}"
        case BestImproved():
            return _improved(event, view)
        case Critiqued():
            return f"critic: {one_line(event.analysis.implies, 160)}"
        case RoundFinished():
            judged, correct = len(view.standings), view.counts.correct
            end = f"; stopping: {one_line(event.why_stop)}" if event.why_stop else ""
            return f"round {event.round} done: {judged} judged, {correct} correct{end}"
        case Awaited():
            return one_line(event.words, 400)
        case ModelCalled():
            why = f": {one_line(event.failure, 200)}" if event.failure else ""
            return f"{event.role} {asked_words(event)}{why}"
        case RoleAnswered():
            return f"{event.role}: {one_line(event.words, 160)}"
        case StrategyEvolved():
            return evolved_words(event)
        case Noted():
            return f"note: {one_line(event.words, 200)}"
        case RunFinished():
            return f"finished after {seconds(event.summary.seconds)}"
        case _:
            return ""


def _improved(event: BestImproved, view: RunView) -> str:
    """The best so far; by the event's own figures where it is all that is known."""
    best_ms = view.best_ms or event.median_ms
    speedup = view.speedup or event.best_baseline_ms / best_ms
    idea = view.best.candidate.idea if view.best else event.idea
    return (
        f"best so far {milliseconds(best_ms)}, {ratio(speedup)} the best baseline, "
        f"{percent(event.floor_ms / best_ms)} of the floor: {one_line(view.title(idea))}"
    )
