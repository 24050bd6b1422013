"""The list of what is done and what is going on: rounds, and the stages of the present one."""

import json
from typing import Literal

from graphs.run_view import RunView
from graphs.words import count, milliseconds, one_line, ratio
from ui.chat.lines import Sheet, id_of

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
    content = {"status": _headline(state), "tasks": tasks}
    return Sheet(key="tasks", name="tasks", kind="tasklist", content=json.dumps(content))


def _task(title: str, status: Status, for_id: str = "") -> dict[str, str | None]:
    return {"title": title, "status": status, "forId": for_id or None}


def _now(running: bool) -> Status:
    return "running" if running else "ready"


def _brought(number: int, view: RunView) -> str:
    """The best of a round's own candidates."""
    best = view.best_of(view.of_round(number))
    if best is None:
        return ": none correct"
    speedup = view.speedup_of(best)
    over = f", {ratio(speedup)}" if speedup else ""
    return f": {milliseconds(best.correct_ms)}{over}"


def _headline(state: str) -> str:
    words = {"resting": "At rest", "pausing": "Pausing", "stopping": "Stopping", "idle": "At rest"}
    return words.get(state, "Searching")
