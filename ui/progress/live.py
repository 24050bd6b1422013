"""Progress drawn in place on a terminal: one panel that says how the search stands.

Notes and new bests are also printed above it, so that they stay in the scrollback.
"""

import time
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from graphs.events import Awaited, BestImproved, Event, Noted
from tools.nouns import Verdict
from ui.progress.board import Board
from ui.progress.plain import sentence
from ui.words import (
    VERDICT,
    count,
    dollars,
    milliseconds,
    one_line,
    percent,
    ratio,
    seconds,
    tokens,
)

BAR = 28


class LiveProgress:
    """Redraws the board after every event."""

    def __init__(self, stream: TextIO) -> None:
        self.board = Board()
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

    def show(self, event: Event) -> None:
        """Take in an event; the next frame shows it."""
        self.board.fold(event)
        self._shown_at = time.monotonic()
        if isinstance(event, BestImproved | Noted | Awaited):
            style = "green" if isinstance(event, BestImproved) else "yellow"
            self._console.print(Text(sentence(event, self.board), style=style))

    def _draw(self) -> Panel:
        since_s = time.monotonic() - self._shown_at
        self._spinner.update(text=stage_line(self.board, self.board.elapsed_s + since_s))
        return Panel(
            Group(self._spinner, times(self.board), counts(self.board)),
            title=title(self.board),
            title_align="left",
            border_style="dim",
        )


def title(board: Board) -> Text:
    """Task, device and run."""
    words = f"{one_line(board.task, 40)} on {one_line(board.hardware, 40)}"
    return Text(words if board.task else "Kernelwright", style="bold")


def stage_line(board: Board, elapsed_s: float) -> Text:
    """Round, stage, idea and the time since the search began."""
    line = Text(f"round {board.round}  {board.stage}", style="cyan")
    if board.idea:
        line.append(f"  {one_line(board.idea, 70)}", style="default")
    line.append(f"  {seconds(elapsed_s)}", style="dim")
    return line


def times(board: Board) -> Table:
    """Eager, the best baseline, the best candidate and the floor, as bars to one scale."""
    rows = [
        ("eager", board.eager_ms, "dim"),
        ("best baseline", board.best_baseline_ms, "default"),
        ("best so far", board.best.median_ms if board.best else None, "green"),
        ("floor", board.floor_ms, "dim"),
    ]
    longest = max((value for _, value, _ in rows if value), default=1.0)
    table = Table.grid(padding=(0, 1))
    for name, value, style in rows:
        bar = "━" * max(1, round(BAR * value / longest)) if value else ""
        table.add_row(
            Text(f"{name:>13}", style="dim"),
            Text(f"{milliseconds(value):>9}", style=style),
            Text(f"{bar:<{BAR}}", style=style),
            Text(remark(name, value, board), style=style),
        )
    return table


def remark(name: str, value: float | None, board: Board) -> str:
    """What to say beside a time."""
    if value is None:
        return "not measured yet" if name != "best so far" else "nothing correct yet"
    if name == "best so far" and board.best:
        of_floor = f", {percent(board.floor_ms / value)} of the floor" if board.floor_ms else ""
        return f"{ratio(board.speedup)} the best baseline{of_floor}"
    return ""


def counts(board: Board) -> Text:
    """How many candidates there are and what the judge said."""
    line = Text(count(board.written, "candidate"), style="bold")
    correct = board.by_verdict[Verdict.CORRECT]
    line.append(f"  {correct} correct", style="green" if correct else "dim")
    for verdict, number in board.by_verdict.most_common():
        if verdict is not Verdict.CORRECT:
            line.append(f"  {number} {VERDICT[verdict]}", style="yellow")
    if board.questions:
        line.append(f"  {asked(board)}", style="dim")
    return line


def asked(board: Board) -> str:
    """How much was asked of models, and what it cost."""
    cost = f", {dollars(board.usd)}" if board.usd is not None else ""
    return f"{count(board.questions, 'question')}, {tokens(board.tokens)}{cost}"
