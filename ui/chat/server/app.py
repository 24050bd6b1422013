"""What Chainlit calls: a person comes, writes, presses, comes back.

A handler returns as soon as it is answered: searches run in the house and never in here, so the
composer stays usable while they do.
"""

import logging
from pathlib import Path

import chainlit as cl
from chainlit.context import ChainlitContext, get_context
from chainlit.message import Message
from chainlit.types import Starter, ThreadDict

from agents.assistant.types.chat import Attachment, ChatReply
from agents.assistant.types.commands import Command
from graphs.conversation import Visit
from ui.chat.messages.elements import ACTION, BESIDE, show_beside, wish_of
from ui.chat.server.conversation import Room
from ui.chat.server.login import LOCAL
from ui.chat.server.state import close_house, house, open_house

log = logging.getLogger(__name__)

BROKEN = (
    "Something went wrong on my side, and it is written in the server's log. Nothing of your "
    "searches is lost; please try again."
)


@cl.on_app_startup
async def startup() -> None:
    """Open the house, and make it ready for the first visitor."""
    opened = await open_house()
    opened.lives.make_ready()


@cl.on_app_shutdown
async def shutdown() -> None:
    """Close it; searches that go on are taken up by the next server."""
    await close_house()


@cl.set_starters
async def starters(_: cl.User | None) -> list[Starter]:
    """What to begin with."""
    return list(STARTERS)


@cl.on_message
async def hear(message: cl.Message) -> None:
    """A person wrote something."""
    room = await _enter()
    files = attachments_of(message)
    await _answer(room, message.content, None, files)


@cl.action_callback(ACTION)
async def press(action: cl.Action) -> None:
    """A person pressed a button."""
    room, wish = await _enter(), wish_of(action)
    if wish is None:
        return
    label = str(action.payload.get("label") or action.label)
    if not action.payload.get("quiet"):
        await room.said(label, _person(get_context()))
    await _answer(room, label, wish)


@cl.action_callback(BESIDE)
async def put_beside(action: cl.Action) -> None:
    """A person wants a message's code in the side panel."""
    room = await _enter()
    if step := room.screen.step(str(action.payload.get("message"))):
        await show_beside(room.thread, step["output"])


@cl.on_chat_resume
async def come_back(thread: ThreadDict) -> None:
    """A conversation is opened again; its page is drawn by Chainlit after this returns."""
    context = get_context()
    room = house().room(context.session.thread_id, _person(context))
    room.screen.expect(context)
    await room.reopen(list(thread["steps"]))
    drawing = context.emitter.resume_thread

    async def draw_then_go_on(thread_dict: ThreadDict) -> None:
        # What is sent before the page was drawn would be drawn over.
        await drawing(thread_dict)
        await room.screen.add(context)

    setattr(context.emitter, "resume_thread", draw_then_go_on)  # noqa: B010  # of one page alone


@cl.on_chat_end
async def leave() -> None:
    """Every reload is an end to Chainlit, so nothing ends here."""


async def _answer(
    room: Room, words: str, wish: Command | None, files: tuple[Attachment, ...] = ()
) -> None:
    at_home = house()
    visit = Visit(room.desk, at_home.assistant, words, files, wish)
    try:
        async for saying in at_home.conversation.hear(room.thread, visit):
            await room.say(saying)
    except Exception:
        log.exception("a message could not be answered")
        await room.say(ChatReply.of(BROKEN))


async def _enter() -> Room:
    """The conversation of this page, which looks at it from now on."""
    context = get_context()
    room = house().room(context.session.thread_id, _person(context))
    await room.screen.add(context)
    return room


def _person(context: ChainlitContext) -> str:
    return context.session.user.identifier if context.session.user else LOCAL


# The server takes no larger ones; this is for those who use another way in.
LARGEST_BYTES = 1_000_000


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """The message's files; what is no text becomes one with signs that say so."""
    found = []
    for element in message.elements:
        if element.path:
            content = Path(element.path).read_bytes()[:LARGEST_BYTES]
            found.append(Attachment(name=element.name, text=content.decode(errors="replace")))
    return tuple(found)


EXAMPLE = """\
Make this faster:

```python
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(2048, 4096)]
```
"""

STARTERS = (
    Starter(label="Try it with a softmax", message=EXAMPLE, icon=None),
    Starter(label="What can you do?", message="What can you do?", icon=None),
    Starter(label="What works on this machine?", message="What works on this machine?", icon=None),
    Starter(label="Show my runs", message="Show my runs", icon=None),
)
