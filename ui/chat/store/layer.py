"""What of a conversation survives: threads, steps, elements and files, behind Chainlit's own seam.

All of it is done in one thread of its own: the server's loop never waits for a disk, and what was
written first is first in the table, which Chainlit's detached writes rely on. Nothing is lost
silently: what cannot be written raises. Feedback is not asked for, so none is kept.
"""

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar, cast

from chainlit.context import context_var
from chainlit.data.base import BaseDataLayer
from chainlit.data.utils import queue_until_user_message
from chainlit.element import Element, ElementDict
from chainlit.step import StepDict
from chainlit.types import (
    Feedback,
    PageInfo,
    PaginatedResponse,
    Pagination,
    ThreadDict,
    ThreadFilter,
)
from chainlit.user import PersistedUser, User
from chainlit.utils import utc_now

from kernelwright.graphs.run_view.events import one_line
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.chat.store.records import (
    RENAMED,
    Body,
    Files,
    Records,
    Thread,
    open_tables,
)

T = TypeVar("T")
P = ParamSpec("P")

# No person is called this, so that a thread that does not exist looks like somebody else's.
NOBODY = "\0"
# Where tags are kept in a thread's body; metadata of the page never has such a key.
TAGS = "\0tags"
# A conversation that has no file yet is called by the beginning of its first message.
LONGEST_NAME = 60


def once_begun(method: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """Hold writes back until a person said something; where there is no page, write at once."""
    held = queue_until_user_message()(method)

    @functools.wraps(method)
    async def write(*args: P.args, **kwargs: P.kwargs) -> None:
        await (method if context_var.get(None) is None else held)(*args, **kwargs)

    return write


class Store(BaseDataLayer):
    """The conversations of one server."""

    def __init__(self, settings: ChatSettings) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._records = Records(open_tables(settings.database, settings.folder))
        self.files = Files(settings.folder / "elements")

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def get_user(self, identifier: str) -> PersistedUser | None:
        """Somebody who was here before."""
        found = await self._do(lambda: self._records.person(identifier))
        if found is None:
            return None
        id, created_at, metadata = found
        return PersistedUser(id=id, createdAt=created_at, identifier=identifier, metadata=metadata)

    async def create_user(self, user: User) -> PersistedUser | None:
        """Keep somebody who came in."""
        id, now, name = str(uuid.uuid4()), utc_now(), user.identifier
        await self._do(lambda: self._records.add_person(id, name, now, dict(user.metadata)))
        return await self.get_user(name)

    async def get_thread_author(self, thread_id: str) -> str:
        """Whose a conversation is."""
        thread = await self._do(lambda: self._records.thread(thread_id))
        return thread.owner if thread else NOBODY

    async def get_thread(self, thread_id: str) -> ThreadDict | None:
        """A whole conversation."""
        return await self._do(lambda: self._whole(thread_id))

    def _whole(self, thread_id: str) -> ThreadDict | None:
        thread = self._records.thread(thread_id)
        if thread is None:
            return None
        whole = _thread_dict(thread)
        # A server that was killed has left steps that will never be streamed to their end.
        steps = [{**step, "streaming": False} for step in self._records.steps(thread_id)]
        whole["steps"] = cast("list[StepDict]", steps)
        whole["elements"] = cast("list[ElementDict]", self._records.elements(thread_id))
        return whole

    async def list_threads(
        self, pagination: Pagination, filters: ThreadFilter
    ) -> PaginatedResponse[ThreadDict]:
        """Somebody's conversations, a page of them, without their steps."""
        owner, search = filters.userId or "", filters.search or ""
        after, limit = pagination.cursor or "", pagination.first
        found = await self._do(lambda: self._page(owner, search, after, limit + 1))
        shown = [_thread_dict(thread) for thread in found[:limit]]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        return PaginatedResponse(PageInfo(len(found) > limit, first, last), shown)

    def _page(self, owner_id: str, search: str, after: str, limit: int) -> list[Thread]:
        owner = self._records.name_of(owner_id)
        return self._records.threads(owner, search, after, limit) if owner else []

    async def update_thread(
        self,
        thread_id: str,
        name: str | None = None,
        user_id: str | None = None,
        metadata: Body | None = None,
        tags: list[str] | None = None,
    ) -> None:
        """Begin a conversation, name it, or keep what belongs to it.

        Chainlit names a new one by all of its first message, and says whose it is; a person who
        names one says the name alone.
        """
        new = dict(metadata or {}) | ({TAGS: tags} if tags is not None else {})
        if name is not None and user_id is None:
            new[RENAMED] = True
        elif name is not None:
            name = one_line(name.partition("```")[0], LONGEST_NAME) or "New conversation"
        now = utc_now()

        def put() -> None:
            owner = self._records.name_of(user_id) if user_id else ""
            # A pasted message names its conversation, and PostgreSQL keeps no NUL.
            kept = name.replace("\0", "") if name is not None else None
            self._records.put_thread(thread_id, owner, kept, now, new)

        await self._do(put)

    async def name_thread(self, thread_id: str, name: str) -> bool | None:
        """Name a conversation by what it came to; see `Records.name_thread`."""
        return await self._do(lambda: self._records.name_thread(thread_id, name))

    async def delete_thread(self, thread_id: str) -> None:
        """Forget a conversation and its files."""

        def drop() -> None:
            for id in self._records.drop_thread(thread_id):
                self.files.drop(thread_id, id)

        await self._do(drop)

    @once_begun
    async def create_step(self, step_dict: StepDict) -> None:
        """Keep a message or a step as it is now."""
        kept = dict(step_dict)
        created = step_dict.get("createdAt") or utc_now()
        id, thread = step_dict["id"], step_dict["threadId"]
        await self._do(lambda: self._records.put_step(id, thread, created, kept))

    @once_begun
    async def update_step(self, step_dict: StepDict) -> None:
        """Keep a step as it is now."""
        await self.create_step(step_dict)

    @once_begun
    async def delete_step(self, step_id: str) -> None:
        """Forget a step."""
        await self._do(lambda: self._records.drop_step(step_id))

    @once_begun
    async def create_element(self, element: Element) -> None:
        """Keep a file, a plot or a source with what is known of it."""
        if not element.for_id:
            return
        kept = cast("Body", dict(element.to_dict()))
        thread, id, step = element.thread_id, element.id, element.for_id
        # Where it is while the session lives is of no use to the next one.
        kept |= {"url": self.files.url(thread, id), "chainlitKey": None}
        path, content = element.path, element.content

        def keep() -> None:
            if self.files.keep(thread, id, path, content):
                self._records.put_element(id, thread, step, kept)

        await self._do(keep)

    async def get_element(self, thread_id: str, element_id: str) -> ElementDict | None:
        """What is known of an element."""
        found = await self._do(lambda: self._records.element(thread_id, element_id))
        return cast("ElementDict | None", found)

    @once_begun
    async def delete_element(self, element_id: str, thread_id: str | None = None) -> None:
        """Forget an element of a conversation."""
        if thread_id is None:
            return

        def drop() -> None:
            self._records.drop_element(element_id, thread_id)
            self.files.drop(thread_id, element_id)

        await self._do(drop)

    async def upsert_feedback(self, feedback: Feedback) -> str:
        """Keep nothing: feedback is not asked for."""
        return feedback.id or ""

    async def delete_feedback(self, feedback_id: str) -> bool:
        """Forget nothing: feedback is not kept."""
        return True

    async def get_favorite_steps(self, user_id: str) -> list[StepDict]:
        """Favourites are switched off."""
        return []

    async def build_debug_url(self) -> str:
        """There is no page about the database."""
        return ""

    async def close(self) -> None:
        """Finish what is being written."""
        await self._do(self._records.engine.dispose)
        self._thread.shutdown()


def _thread_dict(thread: Thread) -> ThreadDict:
    body = dict(thread.body)
    tags = cast("list[str] | None", body.pop(TAGS, None))
    body.pop(RENAMED, None)
    return ThreadDict(
        id=thread.id,
        createdAt=thread.created_at,
        name=thread.name,
        userId=None,
        userIdentifier=thread.owner,
        tags=tags,
        metadata=body,
        steps=[],
        elements=[],
    )
