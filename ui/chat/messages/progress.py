"""The message that stands for a search while it goes on, its tasks, and the card of its end."""

import json
from typing import Literal

from kernelwright.agents.assistant.types import (
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    GetReport,
    MeasureAgain,
    PauseSearch,
    StopSearch,
)
from kernelwright.graphs.conversation import Told
from kernelwright.graphs.run_view import LEADER_COLUMNS, RunView, leader_rows
from kernelwright.graphs.run_view.events import (
    RunFinished,
    count,
    dollars,
    floor_words,
    milliseconds,
    of_floor,
    of_roof,
    one_line,
    ratio,
    seconds,
    tokens,
    waiting_words,
)
from kernelwright.graphs.run_view.failures import failure_lines
from kernelwright.graphs.run_view.figures import (
    Figure,
    caution,
    compared_words,
    device_words,
    headline,
    interval_words,
)
from kernelwright.profiles.load import Hardware
from kernelwright.tools.types.run import BestSummary, Summary
from kernelwright.tools.types.speed_words import BRIEF
from kernelwright.ui.chat.messages.lines import Button, Line, Sheet, id_of
from kernelwright.ui.chat.messages.plots import roofline, trajectory
from kernelwright.ui.chat.messages.safe import table, text

LEADERS = 5
PAUSE = Button(label="Pause", wish=PauseSearch(), icon="pause", quiet=True)
STOP = Button(label="Stop", wish=StopSearch(), icon="square", quiet=True)
CONTINUE = Button(label="Continue", wish=ContinueSearch(), icon="play", quiet=True)
AGAIN = Button(label="Measure again", wish=MeasureAgain(), icon="timer", quiet=True)
EXPORT = Button(label="Export", wish=ExportResult(), icon="download")
REPORT = Button(label="Report", wish=GetReport(), icon="file-text")
EXPLAIN = Button(label="Explain the best", wish=ExplainCandidate(), icon="circle-help")
TAKE = Button(label="Take it home", wish=ExportResult(), icon="download")


def progress(
    thread: str,
    state: str,
    view: RunView,
    hardware: Hardware | None = None,
    ahead: int = 0,
) -> Line:
    """How the search stands, with its plots, the leaders and what can be done about it.

    Without the `hardware` nothing is drawn under its roofs; `ahead` is how many others' work the
    device does first.
    """
    assert view.begun is not None, "a run's first event is its beginning"
    plots = {"trajectory": trajectory(view)}
    plots |= {"roofline": roofline(view, hardware)} if hardware else {}
    sheets = [
        Sheet(key=name, name=name, kind="plotly", content=plot)
        for name, plot in plots.items()
        if plot
    ]
    parts = [
        _headline(state, view, ahead), _profiled(view), _times(view), leaders(view), _effort(view)
    ]  # fmt: skip
    return Line(
        key="progress",
        kind="message",
        name="",
        at=view.begun,
        words="\n\n".join(part for part in parts if part),
        sheets=(*sheets, tasklist(thread, state, view)),
        buttons=_buttons(state, view),
    )


def result(told: Told, view: RunView, hardware: Hardware | None = None) -> Line | None:
    """The card of a session's end; None for every other event."""
    if not isinstance(told.event, RunFinished):
        return None
    summary = told.event.summary
    roof = roofline(view, hardware) if hardware and summary.best else ""
    key = f"result:{told.seq}"
    sheet = Sheet(key=f"{key}/roofline", name="roofline", kind="plotly", content=roof)
    return Line(
        key=key,
        kind="message",
        name="",
        at=told.event.at,
        words=_card(summary, view),
        failed=summary.status == "failed",
        sheets=(sheet,) if roof else (),
        buttons=_next(summary),
    )


def _next(summary: Summary) -> tuple[Button, ...]:
    """What to do with a result."""
    if summary.best is None:
        return (REPORT, CONTINUE)
    again = (AGAIN,) if summary.status == "not_settled" else ()
    return (*again, TAKE, REPORT, EXPLAIN, CONTINUE)


def conversation_name(file: str, view: RunView | None) -> str:
    """What a conversation is called: `softmax.py: 1.42x on H200`; "" while there is no file."""
    if not file or view is None or not view.hardware:
        return file
    device, figure = device_words(view.hardware), view.best_figure
    if view.summary is None:
        return f"{file} on {device}"
    if view.summary.status in BRIEF:
        return f"{file}: {BRIEF[view.summary.status]} on {device}"
    if figure is None or figure.over_best is None:
        return f"{file}: {view.summary.status} on {device}"
    return f"{file}: {ratio(figure.over_best)}{caution(figure.label, figure.outcome)} on {device}"


def _buttons(state: str, view: RunView) -> tuple[Button, ...]:
    export = (EXPORT,) if view.best else ()
    if state in {"starting", "running"}:
        return (PAUSE, STOP, *export)
    if state == "pausing":
        return (STOP, *export)
    return (CONTINUE, *export, REPORT) if state == "resting" else export


def _headline(state: str, view: RunView, ahead: int) -> str:
    task, device = text(one_line(view.task, 60)), text(one_line(view.hardware, 60))
    doing = {
        "starting": "starts",
        "running": f"is {_where(view)}, {view.stage}",
        "pausing": "is pausing: the present step is finished first",
        "stopping": "is stopping",
    }.get(state, "is at rest")
    idea = (
        f" *{text(one_line(view.with_names(view.idea_title)))}*"
        if view.idea and state == "running"
        else ""
    )
    waits = f" {waiting_words(ahead)}" if ahead else ""
    return f"**{task}** on {device}: the search {text(doing)}.{waits}{idea}"


def _where(view: RunView) -> str:
    return f"in round {view.round}" if view.round else "before its first round"


def _profiled(view: RunView) -> str:
    """The profiler's most important sentence, where it looked at a candidate."""
    words = view.profiler_words
    return f"**Profiler**: {text(one_line(words, 240))}" if words else ""


def _times(view: RunView) -> str:
    rows = [
        ("eager PyTorch", milliseconds(view.eager_ms)),
        ("best baseline", milliseconds(view.best_baseline_ms)),
        (view.best_name, _of_best(view)),
        ("floor", floor_words(view.floor_ms, view.floor_how)),
    ]
    return table(("", ""), rows)


def _of_best(view: RunView) -> str:
    if view.best_figure is None:
        return "nothing correct yet"
    parts = [view.best_words]
    if view.floor_ms:
        parts.append(of_floor(view.floor_fraction))
    return ", ".join(parts)


def leaders(view: RunView) -> str:
    """The leaders, and what the labels beside their times mean."""
    rows = leader_rows(view, LEADERS)
    if not rows:
        return ""
    return f"{table(LEADER_COLUMNS, rows)}\n\n*{text(view.legend(LEADERS))}*"


def _effort(view: RunView) -> str:
    made = view.counts
    parts = [count(made.written, "candidate"), f"{made.correct} correct"]
    parts.append(seconds(view.elapsed_s))
    if view.questions:
        parts += [count(view.questions, "question"), tokens(view.tokens)]
        parts += [dollars(view.usd)] if view.usd is not None else []
    return text(", ".join(parts)) + "."


def _card(summary: Summary, view: RunView) -> str:
    best, words = summary.best, headline(view.best_figure, summary.status)
    head = f"**{words[:1].upper()}{words[1:]}**"
    parts = [f"{head}: {text(one_line(summary.task.name, 60))}."]
    if summary.stopped_because:
        parts.append(_why_ended(summary.stopped_because))
    parts.append(_profiled(view))
    if best is not None:
        parts += [table(("", ""), _rows(summary, best, view)), _unverified(best, view)]
    elif failed := failure_lines(view):
        parts.append("\n".join(f"- {text(view.with_names(words))}" for words in failed))
    made = summary.candidates
    parts.append(
        f"{made.written} written, {made.compiled} compiled, {made.correct} correct, {made.timed} "
        f"timed, in {count(summary.rounds, 'round')} and {seconds(summary.seconds)}."
    )
    return "\n\n".join(part for part in parts if part)


def _why_ended(why: str) -> str:
    # A pause is kept as this word.
    return "It is paused and can go on." if why == "paused" else f"It ended because {text(why)}."


def _rows(summary: Summary, best: BestSummary, view: RunView) -> list[tuple[str, str]]:
    figure, tried = view.best_figure, view.candidates.get(best.candidate)
    time = figure.time if figure else milliseconds(best.median_ms)
    rows = [("time", f"{time}, {view.name_of(best.candidate)}")]
    compared = tried.evaluation.comparisons if tried and tried.evaluation else ()
    for item in compared:
        rows.append((f"against {item.baseline}", compared_words(item)))
    in_turns = figure.baseline in {item.baseline for item in compared} if figure else False
    if not in_turns:
        interval = interval_words(*best.ci95, best.outcome)
        words = f"{ratio(best.speedup_vs_best_baseline)}, {interval}"
        rows.append(("against the best baseline", words))
    if not compared and best.speedup_vs_eager is not None:
        rows.append(("against eager", ratio(best.speedup_vs_eager)))
    rows += [("the floor", of_floor(best.floor_fraction))]
    if best.roof_fraction is not None:
        rows += [("the roof", of_roof(best.roof_fraction, best.roof))]
    if best.error_ratio is not None:
        rows.append(("error", f"{best.error_ratio:.2f} times PyTorch's own"))
    rows += [("precision", best.precision), ("checked by", best.method)]
    rows += [("workers", summary.isolation.words), ("device", summary.hardware.name)]
    return rows


def _unverified(best: BestSummary, view: RunView) -> str:
    tried = view.candidates.get(best.candidate)
    found = tried.evaluation.verification.not_verified if tried and tried.evaluation else ()
    return "**Not verified**: " + "; ".join(text(item) for item in found) + "." if found else ""


Status = Literal["ready", "running", "failed", "done"]
# Earlier rounds than these are one line.
ROUNDS = 6


def tasklist(thread: str, state: str, view: RunView) -> Sheet:
    """The list; a task leads to what it is about."""
    running = state in {"starting", "running", "pausing", "stopping"}
    tasks = [_task("Time PyTorch itself", "done" if view.baselines else _now(running))]
    ended = max(view.round_ends, default=0)
    first = max(1, ended - ROUNDS + 1)
    if first > 1:
        tasks.append(_task(f"{count(first - 1, 'earlier round')}", "done"))
    for number in (number for number in view.round_ends if number >= first):
        for_id = id_of(thread, view.run, f"round:{number}")
        tasks.append(_task(f"Round {number}{_brought(number, view)}", "done", for_id))
    stage = one_line(view.stage, 60)
    if running and view.round > ended:
        for_id = id_of(thread, view.run, f"round:{view.round}")
        tasks.append(_task(f"Round {view.round}: {stage}", "running", for_id))
    elif running and view.baselines:
        tasks.append(_task(stage[:1].upper() + stage[1:], "running"))
    content = {"status": _list_status(state), "tasks": tasks}
    return Sheet(key="tasks", name="tasks", kind="tasklist", content=json.dumps(content))


def _task(title: str, status: Status, for_id: str = "") -> dict[str, str | None]:
    return {"title": title, "status": status, "forId": for_id or None}


def _now(running: bool) -> Status:
    return "running" if running else "ready"


def _brought(number: int, view: RunView) -> str:
    """The best of a round's own candidates."""
    figure = view.figure_of(best) if (best := view.best_of(view.of_round(number))) else None
    return f": {short(figure)}" if figure else ": none correct"


def short(figure: Figure) -> str:
    """Figures where there is little room: `8.100 ms precise, 1.10x`."""
    return figure.brief


def _list_status(state: str) -> str:
    words = {"resting": "At rest", "pausing": "Pausing", "stopping": "Stopping", "idle": "At rest"}
    return words.get(state, "Searching")
