"""Which way of showing progress suits the stream at hand."""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self, TextIO

from graphs.events import Event
from graphs.run_view import RunView
from ui.progress.live import LiveProgress
from ui.progress.plain import PlainProgress


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


def watcher(stream: TextIO | None = None) -> Watcher:
    """Live on a terminal, lines elsewhere; on stderr by default, for results go to stdout."""
    stream = stream or sys.stderr
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)
