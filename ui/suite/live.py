"""The live table of a suite: the last tasks, what the present one does, how many are left.

Where nobody watches a terminal there is a line for each task that ended.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphs.events import CandidateWritten, Event
from graphs.suite import Outcome
from ui.commands.output import remarks
from ui.suite.tables import COLUMNS, row_cells
from ui.words import one_line, seconds

SHOWN = 12


@contextmanager
def board(total: int, known: Sequence[Outcome]) -> Iterator["Board"]:
    """A board on stderr, taken away at the end."""
    console = remarks()
    made = Board(total, known, console)
    if not console.is_terminal:
        yield made
        return
    with Live(get_renderable=made.drawn, console=console, transient=True, refresh_per_second=4):
        yield made


class Board:
    """What is shown while a suite runs."""

    def __init__(self, total: int, known: Sequence[Outcome], console: Console) -> None:
        self._total, self._done = total, list(known)
        self._console = console
        self._present, self._since_s, self._written = "", time.monotonic(), 0

    def begin(self, path: Path) -> Callable[[Event], None]:
        """A file's turn; gives who listens to its search."""
        self._present, self._since_s, self._written = path.stem, time.monotonic(), 0
        return self._hear

    def end(self, outcome: Outcome) -> None:
        """A file is done."""
        self._done.append(outcome)
        self._present = ""
        if not self._console.is_terminal:
            cells = ", ".join(cell.plain for cell in row_cells(outcome) if cell.plain != "-")
            self._console.print(
                Text(f"{len(self._done)} of {self._total}: {cells}"), soft_wrap=True
            )

    def drawn(self) -> Group:
        """The table as it is now."""
        table = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in ("task", "end") else "right")
        for item in self._done[-SHOWN:]:
            table.add_row(*row_cells(item))
        return Group(table, Text(self._status(), style="dim"))

    def _hear(self, event: Event) -> None:
        self._written += isinstance(event, CandidateWritten)

    def _status(self) -> str:
        now = f"{len(self._done)} of {self._total} done"
        if not self._present:
            return now
        took = seconds(time.monotonic() - self._since_s)
        return f"{now}; {one_line(self._present, 60)}: {self._written} candidates, {took}"
