"""What lies on a conversation's table: a file, the task that was read of it, a run.

Kept as a file in the person's folder under the conversation's name, so that a reload or another
server finds it.
"""

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kernelwright.agents.assistant.types.chat import ChatReply
from kernelwright.agents.shared.steering import Steering
from kernelwright.graphs.conversation.task_card import TaskCard
from kernelwright.tools.types import Task, TracePolicy, Value

log = logging.getLogger(__name__)


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


Amend = Callable[[ChatReply], Awaitable[None]]


@dataclass(eq=False)
class Table:
    """The table of one conversation; those who change it take turns by `turn`.

    `amended` is told when what was said of the task is to be said anew: a figure came late.
    """

    path: Path
    now: OnTable = field(default_factory=OnTable)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    amended: Amend | None = None
    _following: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def of(cls, home: Path, thread: str) -> "Table":
        """The table as it was left; an empty one where nothing was, or nothing can be read."""
        path = home / "conversations" / f"{thread_name(thread)}.json"
        try:
            return cls(path, OnTable.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            return cls(path)

    def follow(self, coming: Coroutine[object, object, ChatReply | None]) -> None:
        """Wait for the rest of an answer in the background, and have it told."""
        task = asyncio.get_running_loop().create_task(self._follow(coming))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, coming: Coroutine[object, object, ChatReply | None]) -> None:
        try:
            saying = await coming
            if saying is not None and self.amended is not None:
                await self.amended(saying)
        except Exception:  # the search asks again, and tells what is wrong
            log.exception("the rest of an answer did not come")

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
