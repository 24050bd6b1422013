"""The live table of a suite: the last tasks, what the present one does, how many are left.

Where nobody watches a terminal there is a line for each task that ended.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphs.events import CandidateWritten, Event
from graphs.suite import Outcome
from graphs.words import one_line, seconds
from ui.commands.output import remarks
from ui.suite.tables import COLUMNS, row_cells

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
        self._present: dict[str, _Turn] = {}

    def begin(self, path: Path) -> Callable[[Event], None]:
        """A file's turn; gives who listens to its search."""
        turn = self._present[path.name] = _Turn()
        return turn.hear

    def end(self, outcome: Outcome) -> None:
        """A file is done."""
        self._done.append(outcome)
        self._present.pop(outcome.file, None)
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

    def _status(self) -> str:
        parts = [f"{len(self._done)} of {self._total} done"]
        for name, turn in self._present.items():
            took = seconds(time.monotonic() - turn.since_s)
            written = f"{turn.written} candidates, " if turn.written else ""
            parts.append(f"{one_line(Path(name).stem, 60)}: {written}{took}")
        return "; ".join(parts)


@dataclass
class _Turn:
    """A file that is under way; who runs elsewhere does not say what was written."""

    since_s: float = field(default_factory=time.monotonic)
    written: int = 0

    def hear(self, event: Event) -> None:
        """Count what its search writes."""
        self.written += isinstance(event, CandidateWritten)
