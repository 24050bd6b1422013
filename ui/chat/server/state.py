"""What a server has once: its searches, who understands people, and the open conversations.

Made when the server starts and ended with it; searches go on without any page.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from agents.assistant.choice import assistant_for
from agents.assistant.types.chat import Assistant
from graphs.conversation import Conversation
from graphs.desk import Desk, Finding, Lives, Settings
from graphs.story import load
from ui.chat.server.conversation import Room
from ui.chat.settings import ChatSettings, current
from ui.doctor import examine
from ui.report import write

MEMORIES = "memories.db"


class House:
    """Everything of one server; use `opened`."""

    def __init__(
        self, settings: ChatSettings, lives: Lives, conversation: Conversation, talker: Assistant
    ) -> None:
        self.settings, self.lives = settings, lives
        self.conversation, self.assistant = conversation, talker
        self._desks = Settings(
            target=settings.target,
            search=settings.search,
            models=settings.models,
            report=_report,
            examine=_examined,
        )
        self._rooms: dict[str, Room] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def room(self, thread: str, person: str) -> Room:
        """A person's conversation, made when it is asked for."""
        if thread not in self._rooms:
            desk = Desk(self.lives.home, self.lives, person, thread, self._desks)
            self._rooms[thread] = Room(thread, desk, self._forgets(thread))
        return self._rooms[thread]

    def _forgets(self, thread: str) -> Callable[[], None]:
        def forget() -> None:
            if room := self._rooms.pop(thread, None):
                task = asyncio.create_task(room.close())
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

        return forget

    async def close(self) -> None:
        """Show no more, and let searches rest until the next server takes them up."""
        rooms, self._rooms = tuple(self._rooms.values()), {}
        for room in rooms:
            await room.close()
        await self.lives.aclose()


class _Open:
    """The house of this server, while it is open."""

    house: House | None = None
    stack: AsyncExitStack = AsyncExitStack()


async def open_house() -> House:
    """The house; what went on when the last server ended is taken up."""
    if _Open.house is None:
        settings = current()
        settings.folder.mkdir(parents=True, exist_ok=True)
        saver = await _Open.stack.enter_async_context(
            AsyncSqliteSaver.from_conn_string(str(settings.folder / MEMORIES))
        )
        lives = Lives(settings.home, target=settings.target, ready=settings.ready)
        _Open.house = House(settings, lives, Conversation(saver), _assistant(settings))
        _Open.stack.push_async_callback(_Open.house.close)
        await lives.revive()
    return _Open.house


async def close_house() -> None:
    """End what `open_house` began."""
    stack, _Open.stack, _Open.house = _Open.stack, AsyncExitStack(), None
    await stack.aclose()


def house() -> House:
    """The open house."""
    assert _Open.house is not None, "the server opens it before it answers"
    return _Open.house


def quiet() -> bool:
    """Whether no search runs, so that nobody waits for anything but a page."""
    return _Open.house is None or not _Open.house.lives.going


def _assistant(settings: ChatSettings) -> Assistant:
    models = settings.models
    return assistant_for(models.planner if models else None)


def _report(run: str, home: Path, path: Path) -> Path:
    return write(load(run, home), path)


async def _examined() -> tuple[Finding, ...]:
    rows = await examine()
    return tuple(
        Finding(subject=row.subject, outcome=row.outcome, words=row.words, remedy=row.remedy)
        for row in rows
    )
