"""What a server has once: its searches, who understands people, and the open conversations.

Made when the server starts and ended with it; searches go on without any page.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from kernelwright.agents.assistant.model import assistant_for
from kernelwright.agents.assistant.types import Assistant
from kernelwright.graphs.conversation import ChatController, Finding, SearchManager, Settings
from kernelwright.graphs.conversation.graph import Conversation
from kernelwright.graphs.run_view.story import load
from kernelwright.ui.chat.server.conversation import ConversationView
from kernelwright.ui.chat.server.people import lacks
from kernelwright.ui.chat.settings import ChatSettings, current
from kernelwright.ui.doctor import examine
from kernelwright.ui.report import write

MEMORIES = "memories.db"


class ServerState:
    """Everything of one server; made by `open_server`."""

    def __init__(
        self,
        settings: ChatSettings,
        search_manager: SearchManager,
        conversation: Conversation,
        talker: Assistant,
    ) -> None:
        self.settings, self.search_manager = settings, search_manager
        self.conversation, self.assistant = conversation, talker
        self._chat = Settings(
            target=settings.target,
            search=settings.search,
            load_seconds=settings.load_seconds,
            models=settings.models,
            report=_report,
            examine=_examined,
        )
        self._views: dict[str, ConversationView] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def view_of(self, thread: str, person: str) -> ConversationView:
        """A person's conversation, made when it is asked for."""
        if thread not in self._views:
            controller = ChatController(
                self.search_manager.home,
                self.search_manager,
                person,
                thread,
                self._chat,
            )
            self._views[thread] = ConversationView(thread, controller, self._forgets(thread))
        return self._views[thread]

    async def lacks(self) -> str:
        """Why this server takes no files at this moment, in a sentence; "" where it does.

        Somebody may be added while it runs, where nothing keeps people's files apart.
        """
        return await asyncio.to_thread(lacks, self.settings)

    def _forgets(self, thread: str) -> Callable[[], None]:
        def forget() -> None:
            if view := self._views.pop(thread, None):
                task = asyncio.create_task(view.close())
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

        return forget

    async def close(self) -> None:
        """Show no more, and let searches rest until the next server takes them up."""
        views, self._views = tuple(self._views.values()), {}
        for view in views:
            await view.close()
        await self.search_manager.aclose()


class _Open:
    """What this server has, while it is open."""

    state: ServerState | None = None
    stack: AsyncExitStack = AsyncExitStack()


async def open_server() -> ServerState:
    """What the server has; what went on when the last server ended is taken up."""
    if _Open.state is None:
        settings = current()
        settings.folder.mkdir(parents=True, exist_ok=True)
        saver = await _Open.stack.enter_async_context(
            AsyncSqliteSaver.from_conn_string(str(settings.folder / MEMORIES))
        )
        search_manager = SearchManager(settings.home, target=settings.target, ready=settings.ready)
        _Open.state = ServerState(
            settings, search_manager, Conversation(saver), _assistant(settings)
        )
        _Open.stack.push_async_callback(_Open.state.close)
        await search_manager.revive()
    return _Open.state


async def close_server() -> None:
    """End what `open_server` began."""
    stack, _Open.stack, _Open.state = _Open.stack, AsyncExitStack(), None
    await stack.aclose()


def server_state() -> ServerState:
    """What the open server has."""
    assert _Open.state is not None, "the server opens it before it answers"
    return _Open.state


def quiet() -> bool:
    """Whether no search runs, so that nobody waits for anything but a page."""
    return _Open.state is None or not _Open.state.search_manager.going


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
