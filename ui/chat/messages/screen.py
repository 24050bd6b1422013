"""The pages that show one conversation, kept alike, and the store that keeps what they show.

Everything is sent to every page that is open and written to the store, whether a page is open or
not. What was sent while a page was being drawn, or its connection was broken, is sent once more:
the page takes what it knows already as a correction.
"""

import time
from dataclasses import dataclass

from chainlit.action import Action
from chainlit.config import config
from chainlit.context import ChainlitContext
from chainlit.data import get_data_layer
from chainlit.element import Element, ElementDict
from chainlit.session import WebsocketSession
from chainlit.step import StepDict

from kernelwright.ui.chat.messages.elements import (
    ACTION,
    action_of,
    differs,
    element_of,
    kept_element,
    step_of,
)
from kernelwright.ui.chat.messages.lines import Line, id_of
from kernelwright.ui.chat.store.layer import Store

# What was sent within this time is sent again to a page that comes back.
AGAIN_S = 90.0


@dataclass
class Page:
    """One open page; `socket` is the connection that it had when it was last looked at.

    Until Chainlit has `drawn` what the store has, nothing is sent: it would be drawn over.
    """

    context: ChainlitContext
    socket: str = ""
    drawn: bool = True

    @property
    def gone(self) -> bool:
        """Whether its session has ended for good."""
        session = self.context.session
        if not isinstance(session, WebsocketSession):
            return False
        return WebsocketSession.get_by_id(session.id) is not session

    @property
    def connection(self) -> str:
        """The connection that it has now."""
        session = self.context.session
        return session.socket_id if isinstance(session, WebsocketSession) else ""


@dataclass
class Shown:
    """Something as it was last shown, and when (in seconds of the monotonic clock)."""

    step: StepDict
    at_s: float
    line: Line | None = None
    elements: dict[str, ElementDict] | None = None
    actions: tuple[Action, ...] = ()


class Screen:
    """All pages of one conversation."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.pages: list[Page] = []
        self._shown: dict[str, Shown] = {}
        self._stored: dict[str, StepDict] = {}
        self._floor = ""
        self._version = time.time_ns()

    def remember(self, steps: list[StepDict]) -> None:
        """What the store has of this conversation: it is not written again."""
        self._stored |= {step["id"]: step for step in steps if step["id"] not in self._shown}

    def begin(self, run: str, first: str, now: str) -> None:
        """A run is talked about from now on; one that is new here comes after what was said."""
        known = id_of(self.thread, run, first)
        self._floor = "" if known in self._stored or known in self._shown else now

    async def add(self, context: ChainlitContext) -> None:
        """Show everything on one more page too, which has drawn what the store has."""
        page = self.expect(context)
        if not page.drawn:
            page.drawn, page.socket = True, page.connection
            await self._again(page)

    def expect(self, context: ChainlitContext) -> Page:
        """A page that is about to be drawn; one that is there already stays as it is."""
        self.pages = [page for page in self.pages if not page.gone]
        for page in self.pages:
            if page.context.session is context.session:
                return page
        self.pages.append(Page(context, drawn=False))
        return self.pages[-1]

    async def catch_up(self) -> None:
        """Send pages whose connection was broken what they may have missed."""
        for page in self._drawn():
            if page.connection != page.socket:
                page.socket = page.connection
                await self._again(page)

    async def draw(self, run: str, line: Line) -> None:
        """Show a line that is new or has changed."""
        id = id_of(self.thread, run, line.key)
        before = self._shown.get(id)
        if before is not None and before.line == line:
            return
        step = step_of(self.thread, run, line, config.ui.name)
        if before is None and (stored := self._stored.get(id)):
            step["createdAt"] = stored.get("createdAt")
        elif before is not None:
            step["createdAt"] = before.step.get("createdAt")
        else:
            step["createdAt"] = max(step["createdAt"] or "", self._floor)
        actions = tuple(
            action_of(id_of(self.thread, run, f"{line.key}/{item.label}"), item, id, run)
            for item in line.buttons
        )
        shown = Shown(step, time.monotonic(), line, dict(before.elements or {}) if before else {})
        shown.actions = actions
        self._shown[id] = shown
        if before is None or before.step != step:
            await self._put(step)
        old = {sheet.key: sheet for sheet in before.line.sheets} if before and before.line else {}
        for sheet in line.sheets:
            if old.get(sheet.key) != sheet:
                await self._element(shown, element_of(self.thread, run, sheet))
        await self._buttons(before.actions if before else (), actions)

    async def say(
        self, step: StepDict, elements: list[Element], actions: tuple[Action, ...] = ()
    ) -> None:
        """Show a message that is no line of a run, or the same one with other words."""
        before = self._shown.get(step["id"])
        shown = self._shown[step["id"]] = Shown(step, time.monotonic(), None, {}, actions)
        await self._put(step)
        for element in elements:
            await self._element(shown, element)
        await self._buttons(before.actions if before else (), actions)

    async def speak(self, step: StepDict, *, ended: bool) -> None:
        """Show what is being said while it is being said; it is not kept."""
        for page in self._drawn():
            if ended:
                await page.context.emitter.delete_step(step)
            else:
                await page.context.emitter.send_step(step)

    async def recall(self, step: StepDict, actions: tuple[Action, ...]) -> None:
        """A kept message gets its buttons back."""
        self._shown[step["id"]] = Shown(step, 0.0, None, {}, actions)
        await self._buttons((), actions)

    async def rename(self, name: str) -> bool:
        """Name the conversation in everybody's list; False where it is not kept yet."""
        layer = get_data_layer()
        changed = await layer.name_thread(self.thread, name) if isinstance(layer, Store) else False
        if changed:
            # The page reads its list anew when a conversation's first words come.
            told = {"interaction": name, "thread_id": self.thread}
            for page in self._drawn():
                await page.context.emitter.emit("first_interaction", told)
        return changed is not None

    @property
    def watched(self) -> bool:
        """Whether anybody looks, or may come back to a page that was not closed."""
        self.pages = [page for page in self.pages if not page.gone]
        return bool(self.pages)

    def step(self, id: str) -> StepDict | None:
        """A message as it was shown last."""
        shown = self._shown.get(id)
        return shown.step if shown else self._stored.get(id)

    async def unask(self, step: StepDict) -> None:
        """Take a message's questions away, here and in the store."""
        shown = self._shown.get(step["id"])
        if shown is not None:
            stay = tuple(action for action in shown.actions if action.name != ACTION)
            await self._buttons(shown.actions, stay)
            shown.step, shown.actions = step, stay
        await self._write(step)

    async def _put(self, step: StepDict) -> None:
        stored = self._stored.pop(step["id"], None)
        if stored is not None and not differs(stored, step):
            return
        await self._write(step)

    async def _write(self, step: StepDict) -> None:
        if layer := get_data_layer():
            await layer.create_step(step.copy())
        for page in self._drawn():
            await page.context.emitter.send_step(step)

    async def _element(self, shown: Shown, element: Element) -> None:
        """Keep an element, and show it under its message."""
        element.for_id = shown.step["id"]
        if layer := get_data_layer():
            await layer.create_element(element)
        self._version += 1
        told = kept_element(element, self._version)
        assert shown.elements is not None
        shown.elements[element.id] = told
        for page in self._drawn():
            await page.context.emitter.send_element(told)

    async def _buttons(self, gone: tuple[Action, ...], there: tuple[Action, ...]) -> None:
        """Exchange buttons; none is ever there twice, as the page does not know them by id."""
        if gone == there:
            return
        for page in self._drawn():
            for action in gone:
                await page.context.emitter.emit("remove_action", action.to_dict())
            for action in there:
                await page.context.emitter.emit("action", action.to_dict())

    def _drawn(self) -> list[Page]:
        return [page for page in self.pages if page.drawn]

    async def _again(self, page: Page) -> None:
        """Send one page what is new of late, and every button."""
        since_s = time.monotonic() - AGAIN_S
        emitter = page.context.emitter
        for shown in tuple(self._shown.values()):
            if shown.at_s >= since_s:
                await emitter.send_step(shown.step)
                for element in (shown.elements or {}).values():
                    await emitter.send_element(element)
            for action in shown.actions:
                await emitter.emit("remove_action", action.to_dict())
                await emitter.emit("action", action.to_dict())
