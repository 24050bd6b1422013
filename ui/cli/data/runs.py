"""Looking at runs: the list, one as cards, as a tale, as a page, its prompts, its replay."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import count, one_line, plain
from kernelwright.graphs.run_view.figures import device_words, summed_up
from kernelwright.tools.archive import Archive, RunInfo
from kernelwright.tools.types import Call
from kernelwright.tools.types.speed_words import STATUS
from kernelwright.ui.complaints import Complaint, writable_file
from kernelwright.ui.terminal.output import answered_by, by_role, console, spending


def show(run: str, home: Path | None, *, ids: bool = False) -> None:
    """Print a run's cards."""
    from kernelwright.ui.terminal.cards import show

    show(stories.load(run, home), console(), ids=ids)


def trace(run: str, home: Path | None) -> None:
    """Print a run's tale."""
    from kernelwright.ui.terminal.trace import trace

    trace(stories.load(run, home), console())


def report(run: str, output: Path | None, home: Path | None) -> None:
    """Write a run's page and say where."""
    from kernelwright.ui.report import write

    story = stories.load(run, home)
    path = write(story, writable_file(output or story.folder / "report.html"))
    console().print(Text(str(path)), soft_wrap=True)


def runs(home: Path | None) -> None:
    """Print what runs there are, the newest first."""
    from kernelwright.tools.archive import list_runs

    if home is not None and home.exists() and not home.is_dir():
        raise Complaint(f"{home} is no folder")
    found = list_runs(home)
    if not found:
        console().print("no runs yet; begin one with: kernelwright optimize FILE")
        return
    list_of(found, console())


# Narrower than this beside their ids, runs have a line of their own for everything else.
BESIDE_ID = 60


def list_of(found: Sequence[RunInfo], out: Console) -> None:
    """A line for each run; its id is whole at any width, and the other columns give way."""
    longest = max(len(info.id) for info in found)
    if out.width < longest + BESIDE_ID:
        for info in found:
            out.print(Text(info.id), soft_wrap=True)
            line = f"  {'  '.join(reversed(run_cells(info)))}"
            out.print(Text(line), overflow="ellipsis", no_wrap=True)
        return
    table = Table(box=None)
    table.add_column("run", header_style="dim", no_wrap=True, min_width=longest)
    for name in ("begun (UTC)", "task", "device", "state", "best"):
        table.add_column(name, header_style="dim")
    for info in found:
        table.add_row(Text(info.id), *(Text(cell) for cell in run_cells(info)))
    out.print(table)


def run_cells(info: RunInfo) -> tuple[str, ...]:
    """When a run began, over what, where, how it stands, and what it came to."""
    best = info.summary.best if info.summary else None
    state: str = "running" if info.live else info.status or "-"
    if state == "running" and not info.live:
        state = "broken off; resume it"  # its process was killed
    if info.summary is not None and not info.live:
        state = STATUS[info.summary.status]
    return (
        info.created_at.strftime("%Y-%m-%d %H:%M") if info.created_at else "-",
        one_line(info.task, 30),
        one_line(device_words(info.hardware), 30),
        one_line(info.problem, 60) if info.problem else plain(state),
        summed_up(best),
    )


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
        called = "\n".join(f"-> {call.name} {call.arguments}" for call in message.calls)
        _part(f"[{message.author}]", "\n".join(filter(None, (message.text, called))), out)
    if call.reply is None:
        _part("[no answer]", call.failure, out)
        return
    if call.reply.reasoning:
        _part("[reasoning]", call.reply.reasoning, out)
    called = "\n".join(f"-> {item.name} {item.arguments}" for item in call.reply.calls)
    said = "\n".join(filter(None, (call.reply.text, called)))
    _part(f"[answer: {answered_by(call)}]", said, out)


def _part(title: str, text: str, out: Console) -> None:
    out.print(Text(title, style="bold cyan"))
    out.print(Text(plain(text)), soft_wrap=True)
    out.print()


def questions(home: Path | None) -> None:
    """Print every open question of the runs that go on or wait, and where its answer goes."""
    from kernelwright.agents.llm.manual import Mailbox
    from kernelwright.graphs.search.agent_set import QUESTIONS
    from kernelwright.tools.archive import list_runs

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


DIFFERS = 1
AROUND = 60


def replay(run: str, home: Path | None) -> int:
    """Replay a run and say what came of it; the exit status is 1 where a decision differs."""
    from kernelwright.graphs.replay import replay

    told = asyncio.run(replay(run, home=home))
    if told.reworded:
        words = f"{count(len(told.reworded), 'question')} would be asked in other words now"
        sys.stderr.write(f"note: {words}: {', '.join(told.reworded)}\n")
    if told.readings:
        read = [item.key for item in told.readings]
        words = f"{count(len(read), 'reading')} of {len(read) + told.same_readings} differ"
        sys.stderr.write(f"note: {words}: {', '.join(read)}\n")
    if told.difference is not None:
        _tell(told.difference.key, told.difference.recorded, told.difference.replayed, told.same)
        return DIFFERS
    sys.stdout.write(f"the same {count(told.same, 'decision')}\n")
    if told.ended:
        sys.stdout.write(f"the record ends there: it does not hold {told.ended}\n")
    return 0


def _tell(key: str, recorded: str, replayed: str, same: int) -> None:
    out = console()
    out.print(Text(f"the first difference, after {same} that are the same: {plain(key)}"))
    at = _first(recorded, replayed)
    for name, text in (("recorded", recorded), ("replayed", replayed)):
        out.print(Text(f"  {name}: {_excerpt(text, at)}"), soft_wrap=True)
    sys.stderr.write("this version decides otherwise than the one that recorded the run\n")


def _first(left: str, right: str) -> int:
    """Where two texts part."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _excerpt(text: str, at: int) -> str:
    """What stands around that place; nothing where there is no text."""
    if not text:
        return "(no such decision)"
    begin = max(0, at - AROUND)
    words = one_line(text[begin : at + AROUND], 2 * AROUND + 10)
    return ("..." if begin else "") + words + ("..." if at + AROUND < len(text) else "")
