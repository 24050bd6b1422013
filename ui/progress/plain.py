"""Progress in lines, for logs and pipes: what a person would want to read afterwards."""

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
from ui.progress.board import Board
from ui.talk import asked_words, evolved_words
from ui.words import count, milliseconds, one_line, percent, ratio, seconds


class PlainProgress:
    """Writes a line for each event that moves the search on."""

    def __init__(self, stream: TextIO) -> None:
        self.board = Board()
        self._stream = stream

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        self._stream.flush()

    def show(self, event: Event) -> None:
        """Take in an event and say it, if it is worth a line."""
        self.board.fold(event)
        line = sentence(event, self.board)
        if line:
            self._stream.write(f"[{self.board.elapsed_s:6.1f} s] {line}\n")
            self._stream.flush()


def sentence(event: Event, board: Board) -> str:
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
            over_floor = percent(event.floor_ms / event.median_ms)
            return (
                f"best so far {milliseconds(event.median_ms)}, "
                f"{ratio(event.best_baseline_ms / event.median_ms)} the best baseline, "
                f"{over_floor} of the floor: {board.title(event.idea)}"
            )
        case Critiqued():
            return f"critic: {one_line(event.analysis.implies, 160)}"
        case RoundFinished():
            judged = sum(board.by_verdict.values())
            correct = sum(n for v, n in board.by_verdict.items() if v.value == "correct")
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
