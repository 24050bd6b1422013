"""What Chainlit calls: a person comes, writes, presses, comes back.

The handlers are thin; the rest is in `conversation`. Each returns as soon as it is answered:
searches run in the server and never in here, so the composer stays usable while they do.
"""

import base64
import logging
from pathlib import Path

import chainlit as cl
import chainlit.socket as chainlit_socket  # a name that the package itself does not lend
from chainlit.context import ChainlitContext, get_context
from chainlit.message import Message
from chainlit.server import sio
from chainlit.session import WebsocketSession
from chainlit.socket import WebSocketSessionAuth, WSGIEnvironment
from chainlit.types import Starter, ThreadDict

from kernelwright.agents.assistant.types import Attachment, ChatReply, Command
from kernelwright.graphs.conversation.graph import MessageContext
from kernelwright.ui.chat.messages.elements import ACTION, BESIDE, command_of, show_beside
from kernelwright.ui.chat.server.application import LOCAL
from kernelwright.ui.chat.server.conversation import ConversationView
from kernelwright.ui.chat.server.state import close_server, open_server, server_state

log = logging.getLogger(__name__)

NO_FILES = "I take no files and start nothing until this is mended and I am started again: {words}."
BROKEN = (
    "Something went wrong on my side, and it is written in the server's log. Nothing of your "
    "searches is lost; please try again."
)


@cl.on_app_startup
async def startup() -> None:
    """Open the server, and make it ready for the first visitor."""
    opened = await open_server()
    opened.search_manager.make_ready()


@cl.on_app_shutdown
async def shutdown() -> None:
    """Close it; searches that go on are taken up by the next server."""
    await close_server()


async def connect(sid: str, environ: WSGIEnvironment, auth: WebSocketSessionAuth) -> bool:
    """A page opens its socket; a conversation that is not its person's is not found.

    Chainlit would refuse the socket, and the page would say for good that there is no server.
    """
    asked = auth.get("threadId")
    try:
        return bool(await chainlit_socket.connect(sid, environ, auth))
    except ConnectionRefusedError:
        if not asked:
            raise
        without: WebSocketSessionAuth = {**auth, "threadId": ""}
        opened = await chainlit_socket.connect(sid, environ, without)
        WebsocketSession.require(sid).thread_id_to_resume = asked
        return bool(opened)


sio.on("connect", connect)


@cl.set_starters
async def starters(_: cl.User | None) -> list[Starter]:
    """What to begin with."""
    return list(STARTERS)


@cl.on_message
async def hear(message: cl.Message) -> None:
    """A person wrote something."""
    view = await _enter()
    files = attachments_of(message)
    await _answer(view, message.content, None, files)


@cl.action_callback(ACTION)
async def press(action: cl.Action) -> None:
    """A person pressed a button."""
    view, command = await _enter(), command_of(action)
    if command is None:
        return
    label = str(action.payload.get("label") or action.label)
    if not action.payload.get("quiet"):
        await view.said(label, _person(get_context()))
    if not await view.turn_to(str(action.payload.get("run") or "")):
        return
    await _answer(view, label, command)


@cl.action_callback(BESIDE)
async def put_beside(action: cl.Action) -> None:
    """A person wants a message's code in the side panel."""
    view = await _enter()
    if step := view.screen.step(str(action.payload.get("message"))):
        await show_beside(view.thread, step["output"])


@cl.on_chat_resume
async def come_back(thread: ThreadDict) -> None:
    """A conversation is opened again; its page is drawn by Chainlit after this returns."""
    context = get_context()
    view = server_state().view_of(context.session.thread_id, _person(context))
    view.screen.expect(context)
    await view.reopen(list(thread["steps"]))
    drawing = context.emitter.resume_thread

    async def draw_then_go_on(thread_dict: ThreadDict) -> None:
        # What is sent before the page was drawn would be drawn over.
        await drawing(thread_dict)
        await view.screen.add(context)

    setattr(context.emitter, "resume_thread", draw_then_go_on)  # noqa: B010  # of one page alone


@cl.on_chat_end
async def leave() -> None:
    """Every reload is an end to Chainlit, so nothing ends here."""


async def _answer(
    view: ConversationView, words: str, command: Command | None, files: tuple[Attachment, ...] = ()
) -> None:
    state = server_state()
    if lacking := await state.lacks():
        await view.say(ChatReply.of(NO_FILES.format(words=lacking)))
        return
    asked = MessageContext(view.controller, state.assistant, words, files, command)
    try:
        async for saying in state.conversation.hear(view.thread, asked):
            await view.say(saying)
    except Exception:
        log.exception("a message could not be answered")
        await view.say(ChatReply.of(BROKEN))


async def _enter() -> ConversationView:
    """The conversation of this page, which looks at it from now on."""
    context = get_context()
    view = server_state().view_of(context.session.thread_id, _person(context))
    await view.screen.add(context)
    return view


def _person(context: ChainlitContext) -> str:
    return context.session.user.identifier if context.session.user else LOCAL


# More of a file is never read: a module is shorter, and the rest is answered by its name.
LARGEST_BYTES = 1_000_000


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """The message's files; what is no text becomes one with signs that say so."""
    return tuple(
        _attached(element.name, Path(element.path)) for element in message.elements if element.path
    )


def _attached(name: str, path: Path) -> Attachment:
    """An archive is kept as it is, and a notebook whole: the server takes none above its limit."""
    content = path.read_bytes()
    if name.lower().endswith(".zip"):
        return Attachment(name=name, text="", content=base64.b64encode(content).decode())
    if not name.lower().endswith(".ipynb"):
        content = content[:LARGEST_BYTES]
    return Attachment(name=name, text=content.decode(errors="replace"))


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
