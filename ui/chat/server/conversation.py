"""One conversation on the server: its controller, its run as it is shown, and its open pages.

It lives without a page: a search that nobody watches is shown when somebody comes back. What the
page sees of a run is made from the archive's events alone.
"""

import asyncio
import contextlib
import contextvars
import logging
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from chainlit.config import config
from chainlit.step import StepDict

from kernelwright.agents.assistant.types import ChatReply, PauseSearch, ReopenRun, StopSearch
from kernelwright.graphs.conversation import ChatController, Told
from kernelwright.graphs.run_view.events import RunFinished, RunStarted, Speech
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive, RunError
from kernelwright.ui.chat.messages.answers import (
    actions_of,
    kept_offers,
    message,
    note_of,
    spoken,
    without_offers,
)
from kernelwright.ui.chat.messages.lines import Line, stamp
from kernelwright.ui.chat.messages.plots import picture
from kernelwright.ui.chat.messages.presenting import Presentation
from kernelwright.ui.chat.messages.progress import conversation_name, progress, result
from kernelwright.ui.chat.messages.screen import Screen

log = logging.getLogger(__name__)

# How often, in seconds, the progress and its plots are drawn anew at most.
EVERY_S = 2.0
# What comes within this is shown together.
TOGETHER_S = 0.05
LOOK_S = 1.0


class ConversationView:
    """A conversation.

    Args:
        thread: Its id.
        controller: Where its commands are carried out.
        leave: Called when nobody looks and nothing runs, so that it may be forgotten.
    """

    def __init__(self, thread: str, controller: ChatController, leave: Callable[[], None]) -> None:
        self.thread, self.controller = thread, controller
        self.screen = Screen(thread)
        self._leave = leave
        self._presentation: Presentation | None = None
        self._pending: dict[str, Line] = {}
        self._due = asyncio.Event()
        self._card: Line | None = None
        self._hardware: Hardware | None = None
        self._stale = False
        self._asked_in = self._waiting = ""
        self._place = ("", "")  # the last answer that may be said anew, and its message
        self._drawn_at_s = -EVERY_S
        self._drawn_state, self._drawn_ahead = "", 0
        self._named = ""
        # Without a page's context: what is told here belongs to no page, and is kept at once.
        self._task = asyncio.create_task(self._show(), context=contextvars.Context())
        self.controller.amend(self.amend)
        self.controller.hear_waiting(self.remark)
        contextvars.Context().run(self.controller.watch, self._hear)
        contextvars.Context().run(self.controller.overhear, self._overhear)

    async def say(self, saying: ChatReply) -> None:
        """Show an answer; only the latest has buttons."""
        await self._unask()
        self._waiting = ""
        note = note_of(self.thread, saying, config.ui.name)
        drawn = [await picture(self.thread, self.controller.home, item) for item in note.pictures]
        files = [*note.files, *(item for item in drawn if item is not None)]
        await self.screen.say(note.step, files, note.actions)
        if note.actions:
            self._asked_in = note.step["id"]
        self._place = (saying.place, note.step["id"]) if saying.place else self._place
        await self._name()

    async def amend(self, saying: ChatReply) -> None:
        """Say the card anew where it stands; it has buttons if it is the latest question still."""
        place, id = self._place
        before = self.screen.step(id) if id and place == saying.place else None
        if before is None:
            return
        if id != self._asked_in:
            saying = saying.model_copy(update={"offers": ()})
        note = note_of(self.thread, saying, config.ui.name, id)
        note.step["createdAt"] = before.get("createdAt")
        await self.screen.say(note.step, note.files, note.actions)

    async def remark(self, words: str) -> None:
        """Say that a file is still being read, in one line that changes until the answer comes."""
        self._waiting = self._waiting or str(uuid.uuid4())
        line = f"{words[:1].upper()}{words[1:]}."
        await self.screen.say(message(self.thread, self._waiting, line, config.ui.name), [])

    async def said(self, words: str, author: str) -> None:
        """Show what a button said for the person."""
        await self._unask()
        step = message(self.thread, str(uuid.uuid4()), words, author, by_person=True)
        await self.screen.say(step, [])

    async def turn_to(self, run: str) -> bool:
        """Talk about the run of a card whose button was pressed; False where it is gone."""
        if not run or run == self.controller.run:
            return True
        reply = await self.controller.do(ReopenRun(run=run))
        if self.controller.run != run:
            await self.say(reply)
        return self.controller.run == run

    async def reopen(self, steps: list[StepDict]) -> None:
        """Take up what was kept: its messages, and the buttons of the last answer."""
        self.screen.remember(steps)
        last = next((step for step in reversed(steps) if kept_offers(step)), None)
        if last is not None and not self._asked_in:
            self._asked_in = last["id"]
            await self.screen.recall(last, actions_of(last["id"], kept_offers(last)))

    async def close(self) -> None:
        """Show no more; the search goes on."""
        self.controller.unwatch()
        self.controller.turn_away()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _unask(self) -> None:
        """Take away the buttons of the answer before."""
        id, self._asked_in = self._asked_in, ""
        step = self.screen.step(id) if id else None
        if step is not None:
            await self.screen.unask(without_offers(step))

    async def _expire(self) -> None:
        """What only a running search answers to goes when it is over."""
        over = self._asked_in and not self.controller.running
        step = self.screen.step(self._asked_in) if over else None
        wishes = [offer.wish for offer in kept_offers(step)] if step is not None else []
        if wishes and all(isinstance(wish, PauseSearch | StopSearch) for wish in wishes):
            await self._unask()

    async def _hear(self, told: Told) -> None:
        """Fold an event; what it changes is shown a moment later."""
        if self._presentation is None or self._presentation.run != told.run:
            self._presentation, self._card = Presentation(told.run), None
            self._drawn_state = ""
            self.screen.begin(told.run, f"begun:{told.seq}", stamp(datetime.now(UTC)))
        for line in self._presentation.take(told.seq, told.event):
            self._pending[line.key] = line
        if isinstance(told.event, RunStarted | RunFinished):
            self._hardware = await asyncio.to_thread(_hardware, self.controller.home, told.run)
            self._end(result(told, self._presentation.view, self._hardware))
        self._due.set()

    def _end(self, card: Line | None) -> None:
        """Show the card of a session's end; an earlier one is no longer the place to go on."""
        if self._card is not None:
            self._pending[self._card.key] = self._card.model_copy(update={"buttons": ()})
            self._card = None
        if card is not None:
            self._card = self._pending[card.key] = card

    async def _overhear(self, speech: Speech) -> None:
        step, ended = spoken(self.thread, self.controller.run, speech)
        await self.screen.speak(step, ended=ended)

    async def _show(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._due.wait()
            await asyncio.sleep(TOGETHER_S)
            self._due.clear()
            try:
                await self._draw()
            except Exception:
                log.exception("conversation %s could not be shown", self.thread)
            done = not self.controller.running and not self._due.is_set() and not self._stale
            if done and not self.screen.watched:
                self._leave()

    async def _draw(self) -> None:
        """Everything that changed, parents first; the progress now and then."""
        await self.screen.catch_up()
        await self._name()
        await self._expire()
        if self._presentation is None:
            return
        run, pending, self._pending = self._presentation.run, self._pending, {}
        if not self._drawn_state:  # it stands above its rounds
            await self._progress(run, self.controller.state, self.controller.ahead)
        for line in pending.values():
            await self.screen.draw(run, line)
        state, now_s = self.controller.state, time.monotonic()
        self._stale = self._stale or bool(pending)
        due = self._stale and now_s - self._drawn_at_s >= EVERY_S
        ahead = self.controller.ahead
        if due or (state, ahead) != (self._drawn_state, self._drawn_ahead):
            self._stale = False
            await self._progress(run, state, ahead)

    async def _name(self) -> None:
        """Name the conversation by its file, and by what came of it once that is known."""
        told = self._presentation
        view = told.view if told is not None and told.run == self.controller.run else None
        name = conversation_name(self.controller.file, view)
        if name and name != self._named and await self.screen.rename(name):
            self._named = name

    async def _progress(self, run: str, state: str, ahead: int) -> None:
        """The message that stands for the search."""
        if self._presentation is not None:
            self._drawn_at_s = time.monotonic()
            self._drawn_state, self._drawn_ahead = state, ahead
            view = self._presentation.view
            line = progress(self.thread, state, view, self._hardware, ahead)
            await self.screen.draw(run, line)


def _hardware(home: Path, run: str) -> Hardware | None:
    """The device of a run, for the roofs; None where the archive cannot be read."""
    try:
        archive = Archive.open(run, home)
    except RunError:
        return None
    try:
        return archive.record().hardware
    finally:
        archive.close()
