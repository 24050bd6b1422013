"""Which questions are open: runs that wait for a person's answers, and where those go."""

from pathlib import Path

from rich.text import Text

from ui.commands.output import console


def questions(home: Path | None) -> None:
    """Print every open question of the runs that go on or wait, and where its answer goes."""
    from agents.llm.manual import Mailbox
    from graphs.minds import QUESTIONS
    from tools.archive import list_runs

    out, found = console(), 0
    for run in reversed(list_runs(home)):
        waits = run.summary is not None and run.summary.status == "waiting"
        if not (run.live or waits):
            continue
        for letter in Mailbox(Path(run.folder) / QUESTIONS).unanswered():
            out.print(Text(str(letter.prompt)), soft_wrap=True)
            out.print(Text(f"  answer in {letter.answer.name}", style="dim"), soft_wrap=True)
            found += 1
    if not found:
        out.print("no open questions")
