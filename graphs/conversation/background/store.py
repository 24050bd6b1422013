"""Where a person's things are kept: a folder each, so that one person never meets another's.

`<home>/people/<slug>/` holds their runs, the state of their conversations, the files they brought
and the exports that were made for them. With a run its server keeps whether the search is to go on,
and the person's steering. A conversation's state (a file, the task that was read of it, a run) is
kept as a file under the conversation's name, so that a reload or another server finds it.
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

from kernelwright.agents.assistant.types import ChatReply, SetBudget, StartSearch
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.conversation.background.task_card import TaskCard
from kernelwright.graphs.run_view.events import Noted
from kernelwright.graphs.search.pace import Spent, spent_of
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.types import Task, TracePolicy, Value

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def slug(name: str) -> str:
    """A folder's name for any name; two names never share one."""
    if _SAFE.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24] or "person"
    # A dot keeps these apart from the names that stand for themselves.
    return f"{readable}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def folder_of(home: Path, person: str) -> Path:
    """The folder of a person, which is the home of their runs; not created here."""
    return home / "people" / slug(person)


def every_folder(home: Path) -> tuple[Path, ...]:
    """The folders of everybody who was here."""
    people = home / "people"
    return tuple(sorted(path for path in people.iterdir())) if people.is_dir() else ()


def file_name(name: str) -> str:
    """A file's name that is safe to write, from what a person's machine called it."""
    given = Path(name.replace("\\", "/"))
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", given.stem).strip("_")[:48]
    ending = given.suffix.lower() if given.suffix.lower() in (".ipynb", ".zip") else ".py"
    return f"{stem or 'module'}{ending}"


GOING, STEERING, TITLE = "going", "steering", "title"


def keep_going(folder: Path, *, going: bool) -> None:
    """Keep whether the search is to be taken up after the server ended."""
    archive = Archive(folder)
    try:
        archive.record_term(GOING, "true" if going else "false")
    finally:
        archive.close()


def keep_end(folder: Path, problem: str, *, going: bool) -> None:
    """Keep how a session ended: with a problem or none, and whether the search is to go on."""
    if not going:
        keep_going(folder, going=False)
    if problem:
        note(folder, problem)


def is_going(folder: Path) -> bool:
    """Whether a search went on when its server ended; False where the run cannot be read."""
    try:
        archive = Archive.open(folder)
    except RunError:
        return False
    try:
        term = archive.term(GOING)
        # Killed between its beginning and the first word of it, a run has no term yet.
        return term == "true" or (term is None and archive.record().status == "running")
    finally:
        archive.close()


def keep_steering(folder: Path, steering: Steering) -> None:
    """Keep the person's steering, so that a resumed search has it."""
    archive = Archive(folder)
    try:
        archive.record_term(STEERING, steering.model_dump_json())
    finally:
        archive.close()


def keep_profile(folder: Path, profile: SearchProfile) -> None:
    """Keep what a run may spend when it goes on."""
    archive = Archive(folder)
    try:
        archive.set_profile(profile)
    finally:
        archive.close()


def kept_spent(folder: Path) -> Spent:
    """The time that a run's ended sessions spent."""
    archive = Archive.open(folder)
    try:
        return spent_of(archive)
    finally:
        archive.close()


def kept_steering(folder: Path) -> Steering:
    """The person's steering for a run."""
    archive = Archive(folder)
    try:
        term = archive.term(STEERING)
    finally:
        archive.close()
    return Steering.model_validate_json(term) if term else Steering()


def keep_title(folder: Path, title: str) -> None:
    """Keep the name that a person gave a run."""
    archive = Archive(folder)
    try:
        archive.record_term(TITLE, title)
    finally:
        archive.close()


def note(folder: Path, words: str) -> None:
    """Tell a plain sentence in the run's events."""
    archive = Archive(folder)
    try:
        event = Noted(words=words)
        archive.append_event(event.kind, event.round, event.model_dump_json())
    finally:
        archive.close()


log = logging.getLogger(__name__)


class ConversationState(Value):
    """What a conversation is about: the loaded task, its search, and steering for it.

    `file` is where the person's file was put, "" while there is none; `gpu` the device they
    named. `task` and `card` are what was read of it, `audited` once the judge ran it, `waiting`
    while the question on the card is open. `begin` is what was said of the search when the task was
    brought, `steering` and `budget` since; `run` is the run that is talked about.
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
    begin: StartSearch = StartSearch()
    steering: Steering = Steering()
    budget: SetBudget = SetBudget()
    run: str = ""


Remark = Callable[[str], Awaitable[None]]
Amend = Callable[[ChatReply], Awaitable[None]]


@dataclass(eq=False)
class ConversationStore:
    """The state of one conversation, kept as a file; those who change it take turns by `turn`.

    `amended` is told when what was said of the task is to be said anew: a figure came late;
    `remarked` that a file is still being read, and no answer comes yet.
    """

    path: Path
    now: ConversationState = field(default_factory=ConversationState)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    amended: Amend | None = None
    remarked: Remark | None = None
    _following: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def of(cls, home: Path, thread: str) -> "ConversationStore":
        """The table as it was left; an empty one where nothing was, or nothing can be read."""
        path = home / "conversations" / f"{thread_name(thread)}.json"
        try:
            return cls(path, ConversationState.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            return cls(path)

    def follow(self, coming: Coroutine[object, object, ChatReply | None]) -> None:
        """Wait for the rest of an answer in the background, and have it told."""
        task = asyncio.get_running_loop().create_task(self._follow(coming))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, coming: Coroutine[object, object, ChatReply | None]) -> None:
        try:
            reply = await coming
            if reply is not None and self.amended is not None:
                await self.amended(reply)
        except Exception:  # the search asks again, and tells what is wrong
            log.exception("the rest of an answer did not come")

    def remark(self, loop: asyncio.AbstractEventLoop, words: str) -> None:
        """Have a plain line told, in the conversation's own loop; called from any thread."""
        loop.call_soon_threadsafe(lambda: self.follow(self._remarked(words)))

    async def _remarked(self, words: str) -> ChatReply | None:
        if self.remarked is not None:
            await self.remarked(words)
        return None

    async def put(self, now: ConversationState) -> None:
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
