"""What lies on a conversation's table: a file, the task that was read of it, a run.

Kept as a file in the person's folder under the conversation's name, so that a reload or another
server finds it.
"""

import asyncio
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from agents.steering import Steering
from graphs.desk.card import TaskCard
from tools.nouns import Task, TracePolicy, Value


class OnTable(Value):
    """The things themselves.

    `file` is where the person's file was put, "" while there is none; `gpu` the device they
    named. `task` and `card` are what was read of it, `audited` once the judge ran it, `waiting`
    while the question on the card is open. `steering` is for the search to come; `run` is the run
    that is talked about.
    """

    file: str = ""
    name: str = ""
    gpu: str = ""
    policy: TracePolicy = TracePolicy()
    precisions: tuple[str, ...] = ()
    task: Task | None = None
    audited: bool = False
    waiting: bool = False
    card: TaskCard | None = None
    steering: Steering = Steering()
    run: str = ""


@dataclass
class Table:
    """The table of one conversation; those who change it take turns by `turn`."""

    path: Path
    now: OnTable = field(default_factory=OnTable)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, home: Path, thread: str) -> "Table":
        """The table as it was left; an empty one where nothing was, or nothing can be read."""
        path = home / "conversations" / f"{thread_name(thread)}.json"
        try:
            return cls(path, OnTable.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            return cls(path)

    async def put(self, now: OnTable) -> None:
        """Change what lies there, and keep it."""
        self.now = now
        await asyncio.to_thread(_write, self.path, now.model_dump_json())


def thread_name(thread: str) -> str:
    """A file's name for any name of a conversation; two never share one."""
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", thread):
        return thread
    return f"t.{hashlib.sha256(thread.encode()).hexdigest()[:24]}"


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that a crash leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
