"""Questions to language models: a list of them, or one in full."""

from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from graphs.words import plain
from tools.archive import Archive
from tools.nouns import Call
from ui.commands.output import console
from ui.complaints import Complaint
from ui.talk import answered_by, by_role, spending


def prompts(run: str, key: str | None, home: Path | None) -> None:
    """Print what models were asked in a run, or every call of one key in full."""
    archive = Archive.open(run, home)
    try:
        calls = archive.calls()
    finally:
        archive.close()
    if key is None:
        overview(calls, archive.id, console())
        return
    found = [call for call in calls if f"{call.prompt.key}:".startswith(f"{key}:")]
    if not found:
        raise Complaint(f"run {archive.id} has no question {key!r}; list them without a key")
    for call in found:
        in_full(call, console())


def overview(calls: tuple[Call, ...], run: str, out: Console) -> None:
    """A line for each question, in the order they were asked, and what they came to."""
    if not calls:
        out.print(f"no model was asked in run {run}")
        return
    table = Table(box=None)
    for name in ("round", "question", "prompt", "answer"):
        table.add_column(name, header_style="dim", overflow="fold")
    for call in calls:
        size = sum(len(message.text) for message in call.prompt.messages)
        table.add_row(
            str(call.prompt.round), Text(call.prompt.key), f"{size} characters",
            Text(answered_by(call)),
        )  # fmt: skip
    out.print(table)
    for item in by_role(calls):
        out.print(Text(f"{item.role}: {item.words}"))
    out.print(Text(f"all: {spending(calls).words}", style="bold"))
    out.print(Text(f"one of them in full: kernelwright prompts {run} QUESTION", style="dim"))


def in_full(call: Call, out: Console) -> None:
    """Every message, what the model thought, what it said."""
    out.print(Rule(Text(call.prompt.key, style="bold")))
    for message in call.prompt.messages:
        _part(f"[{message.author}]", message.text, out)
    if call.reply is None:
        _part("[no answer]", call.failure, out)
        return
    if call.reply.reasoning:
        _part("[reasoning]", call.reply.reasoning, out)
    _part(f"[answer: {answered_by(call)}]", call.reply.text, out)


def _part(title: str, text: str, out: Console) -> None:
    out.print(Text(title, style="bold cyan"))
    out.print(Text(plain(text)), soft_wrap=True)
    out.print()
