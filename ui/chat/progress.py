"""The message that stands for a search while it goes on, and the card when it ended."""

from agents.assistant.types.commands import (
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    GetReport,
    PauseSearch,
    StopSearch,
)
from graphs.desk import Told
from graphs.events import RunFinished
from profiles.load import Hardware
from tools.nouns import Verdict
from tools.nouns.run import BestSummary, Summary
from ui.chat.gathering import Gathered
from ui.chat.lines import Button, Line, Sheet
from ui.chat.plots import roofline, trajectory
from ui.chat.safe import table, text
from ui.chat.tasklist import tasklist
from ui.progress.board import Board
from ui.words import (
    STATUS,
    count,
    dollars,
    milliseconds,
    one_line,
    percent,
    ratio,
    seconds,
    tokens,
    waiting_words,
)

LEADERS = 5
PAUSE = Button(label="Pause", wish=PauseSearch(), icon="pause", quiet=True)
STOP = Button(label="Stop", wish=StopSearch(), icon="square", quiet=True)
CONTINUE = Button(label="Continue", wish=ContinueSearch(), icon="play", quiet=True)
EXPORT = Button(label="Export", wish=ExportResult(), icon="download")
REPORT = Button(label="Report", wish=GetReport(), icon="file-text")
EXPLAIN = Button(label="Explain the best", wish=ExplainCandidate(), icon="circle-help")
TAKE = Button(label="Take it home", wish=ExportResult(), icon="download")


def progress(
    thread: str,
    state: str,
    board: Board,
    known: Gathered,
    hardware: Hardware | None = None,
    ahead: int = 0,
) -> Line:
    """How the search stands, with its plots, the leaders and what can be done about it.

    Without the `hardware` nothing is drawn under its roofs; `ahead` is how many others' work the
    device does first.
    """
    assert known.begun is not None, "a run's first event is its beginning"
    plots = {"trajectory": trajectory(known)}
    plots |= {"roofline": roofline(known, hardware)} if hardware else {}
    sheets = [
        Sheet(key=name, name=name, kind="plotly", content=plot)
        for name, plot in plots.items()
        if plot
    ]
    parts = [_headline(state, board, ahead), _times(board), _leaders(known), _effort(board)]
    return Line(
        key="progress",
        kind="message",
        name="",
        at=known.begun,
        words="\n\n".join(part for part in parts if part),
        sheets=(*sheets, tasklist(thread, state, board, known)),
        buttons=_buttons(state, board),
    )


def result(told: Told, known: Gathered, hardware: Hardware | None = None) -> Line | None:
    """The card of a session's end; None for every other event."""
    if not isinstance(told.event, RunFinished):
        return None
    summary = told.event.summary
    roof = roofline(known, hardware) if hardware and summary.best else ""
    key = f"result:{told.seq}"
    sheet = Sheet(key=f"{key}/roofline", name="roofline", kind="plotly", content=roof)
    return Line(
        key=key,
        kind="message",
        name="",
        at=told.event.at,
        words=_card(summary, known),
        failed=summary.status == "failed",
        sheets=(sheet,) if roof else (),
        buttons=(TAKE, REPORT, EXPLAIN, CONTINUE) if summary.best else (REPORT, CONTINUE),
    )


def _buttons(state: str, board: Board) -> tuple[Button, ...]:
    export = (EXPORT,) if board.best else ()
    if state in {"starting", "running"}:
        return (PAUSE, STOP, *export)
    if state == "pausing":
        return (STOP, *export)
    return (CONTINUE, *export, REPORT) if state == "resting" else export


def _headline(state: str, board: Board, ahead: int) -> str:
    task, device = text(one_line(board.task, 60)), text(one_line(board.hardware, 60))
    doing = {
        "starting": "starts",
        "running": f"is in round {max(board.round, 1)}, {board.stage}",
        "pausing": "is pausing: the present step is finished first",
        "stopping": "is stopping",
    }.get(state, "is at rest")
    idea = f" *{text(board.idea)}*" if board.idea and state == "running" else ""
    waits = f" {waiting_words(ahead)}" if ahead else ""
    return f"**{task}** on {device}: the search {text(doing)}.{waits}{idea}"


def _times(board: Board) -> str:
    rows = [
        ("eager PyTorch", milliseconds(board.eager_ms)),
        ("best baseline", milliseconds(board.best_baseline_ms)),
        ("best so far", _of_best(board)),
        ("floor", f"{milliseconds(board.floor_ms)}, nothing can be faster here"),
    ]
    return table(("", ""), rows)


def _of_best(board: Board) -> str:
    if board.best is None:
        return "nothing correct yet"
    parts = [milliseconds(board.best.median_ms)]
    parts += [f"{ratio(board.speedup)} the best baseline"] if board.speedup else []
    if board.floor_ms:
        parts.append(f"{percent(board.floor_ms / board.best.median_ms)} of the floor")
    return ", ".join(parts)


def _leaders(known: Gathered) -> str:
    rows = []
    for item in known.leaders[:LEADERS]:
        base, took = known.best_baseline_ms, item.correct_ms
        idea = known.ideas.get(item.candidate.idea)
        over = ratio(base / took) if base and took else "-"
        rows.append(
            (item.name, milliseconds(took), over, one_line(idea.title, 60) if idea else "-")
        )
    return table(("leaders", "time", "vs best baseline", "idea"), rows) if rows else ""


def _effort(board: Board) -> str:
    correct = board.by_verdict[Verdict.CORRECT]
    parts = [count(board.written, "candidate"), f"{correct} correct", seconds(board.elapsed_s)]
    if board.questions:
        parts += [count(board.questions, "question"), tokens(board.tokens)]
        parts += [dollars(board.usd)] if board.usd is not None else []
    return text(", ".join(parts)) + "."


def _card(summary: Summary, known: Gathered) -> str:
    best = summary.best
    if best is not None and summary.status == "improved":
        head = f"**{ratio(best.speedup_vs_best_baseline)} as fast as the best baseline**"
    else:
        words = STATUS[summary.status]
        head = f"**{words[:1].upper()}{words[1:]}**"
    parts = [f"{head}: {text(one_line(summary.task.name, 60))}."]
    if summary.stopped_because:
        parts.append(f"It ended because {text(summary.stopped_because)}.")
    if best is not None:
        parts += [table(("", ""), _rows(summary, best, known)), _unverified(best, known)]
    made = summary.candidates
    parts.append(
        f"{made.written} written, {made.compiled} compiled, {made.correct} correct, {made.timed} "
        f"timed, in {count(summary.rounds, 'round')} and {seconds(summary.seconds)}."
    )
    return "\n\n".join(part for part in parts if part)


def _rows(summary: Summary, best: BestSummary, known: Gathered) -> list[tuple[str, str]]:
    low, high = best.ci95
    unclear = best.outcome == "not distinguishable" if best.outcome else low <= 1 <= high
    doubt = ", not distinguishable" if unclear else ""
    rows = [("time", f"{milliseconds(best.median_ms)} ({known.name_of(best.candidate)})")]
    tried = known.tried.get(best.candidate)
    compared = tried.evaluation.comparisons if tried and tried.evaluation else ()
    for item in compared:
        words = f"{ratio(item.ratio)}, 95 % interval {item.ci95_low:.2f} to {item.ci95_high:.2f}"
        words += "" if item.distinguishable else ", not distinguishable"
        rows.append((f"against {item.baseline}", words))
    if not compared:
        words = (
            f"{ratio(best.speedup_vs_best_baseline)}, 95 % interval {low:.2f} to {high:.2f}{doubt}"
        )
        rows.append(("against the best baseline", words))
        if best.speedup_vs_eager is not None:
            rows.append(("against eager", ratio(best.speedup_vs_eager)))
    rows += [("of the floor", percent(best.floor_fraction))]
    if best.error_ratio is not None:
        rows.append(("error", f"{best.error_ratio:.2f} times PyTorch's own"))
    rows += [("precision", best.precision), ("checked by", best.method)]
    rows += [("workers", summary.isolation.words), ("device", summary.hardware.name)]
    return rows


def _unverified(best: BestSummary, known: Gathered) -> str:
    tried = known.tried.get(best.candidate)
    found = tried.evaluation.verification.not_verified if tried and tried.evaluation else ()
    return "**Not verified**: " + "; ".join(text(item) for item in found) + "." if found else ""
