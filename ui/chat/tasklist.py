"""The list of what is done and what is going on: rounds, and the stages of the present one."""

import json
from typing import Literal

from ui.chat.gathering import Gathered
from ui.chat.lines import Sheet, id_of
from ui.progress.board import Board
from ui.words import count, milliseconds, one_line, ratio

Status = Literal["ready", "running", "failed", "done"]
# Earlier rounds than these are one line.
ROUNDS = 6


def tasklist(thread: str, state: str, board: Board, known: Gathered) -> Sheet:
    """The list; a task leads to what it is about."""
    running = state in {"starting", "running", "pausing", "stopping"}
    tasks = [_task("Time PyTorch itself", "done" if known.baselines else _now(running))]
    ended = max(known.round_ends, default=0)
    first = max(1, ended - ROUNDS + 1)
    if first > 1:
        tasks.append(_task(f"{count(first - 1, 'earlier round')}", "done"))
    for number in (number for number in known.round_ends if number >= first):
        for_id = id_of(thread, board.run, f"round:{number}")
        tasks.append(_task(f"Round {number}{_brought(number, known)}", "done", for_id))
    stage = one_line(board.stage, 60)
    if running and board.round > ended:
        for_id = id_of(thread, board.run, f"round:{board.round}")
        tasks.append(_task(f"Round {board.round}: {stage}", "running", for_id))
    elif running and known.baselines:
        tasks.append(_task(stage[:1].upper() + stage[1:], "running"))
    content = {"status": _headline(state), "tasks": tasks}
    return Sheet(key="tasks", name="tasks", kind="tasklist", content=json.dumps(content))


def _task(title: str, status: Status, for_id: str = "") -> dict[str, str | None]:
    return {"title": title, "status": status, "forId": for_id or None}


def _now(running: bool) -> Status:
    return "running" if running else "ready"


def _brought(number: int, known: Gathered) -> str:
    """The best of a round's own candidates."""
    times = [t.correct_ms for t in known.tried.values() if t.round == number and t.correct_ms]
    if not times:
        return ": none correct"
    base = known.best_baseline_ms
    over = f", {ratio(base / min(times))}" if base else ""
    return f": {milliseconds(min(times))}{over}"


def _headline(state: str) -> str:
    words = {"resting": "At rest", "pausing": "Pausing", "stopping": "Stopping", "idle": "At rest"}
    return words.get(state, "Searching")
