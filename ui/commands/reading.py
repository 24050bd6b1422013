"""Looking at runs: the list, one as cards, as a tale, as a page."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from graphs import story as stories
from graphs.words import STATUS, one_line, plain, ratio
from ui.commands.output import console
from ui.complaints import writable_file


def show(run: str, home: Path | None) -> None:
    """Print a run's cards."""
    from ui.cards import show

    show(stories.load(run, home), console())


def trace(run: str, home: Path | None) -> None:
    """Print a run's tale."""
    from ui.trace import trace

    trace(stories.load(run, home), console())


def report(run: str, output: Path | None, home: Path | None) -> None:
    """Write a run's page and say where."""
    from ui.report import write

    story = stories.load(run, home)
    path = write(story, writable_file(output or story.folder / "report.html"))
    console().print(Text(str(path)), soft_wrap=True)


def runs(home: Path | None) -> None:
    """Print what runs there are, the newest first."""
    from tools.archive import list_runs

    found = list_runs(home)
    if not found:
        console().print("no runs yet; begin one with: kernelwright optimize FILE")
        return
    table = Table(box=None)
    for name in ("run", "begun (UTC)", "task", "device", "state", "best"):
        table.add_column(name, header_style="dim")
    for info in found:
        begun = info.created_at.strftime("%Y-%m-%d %H:%M") if info.created_at else "-"
        best = info.summary.best if info.summary else None
        state: str = "running" if info.live else info.status or "-"
        if info.summary is not None and not info.live:
            state = STATUS[info.summary.status]
        table.add_row(
            Text(info.id),
            begun,
            Text(one_line(info.task, 30)),
            Text(one_line(info.hardware, 30)),
            Text(one_line(info.problem, 60) if info.problem else plain(state)),
            ratio(best.speedup_vs_best_baseline) if best else "-",
        )
    console().print(table)
