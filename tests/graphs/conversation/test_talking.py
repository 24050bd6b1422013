"""Whole conversations by rules over a real controller; the search is the toy's."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.assistant.model import assistant_for
from kernelwright.agents.assistant.rules import RulesAssistant
from kernelwright.agents.assistant.types import Attachment, ChatReply
from kernelwright.agents.assistant.types.pieces import Download
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.conversation.background.search_manager import SearchManager
from kernelwright.graphs.conversation.context import Settings
from kernelwright.graphs.conversation.controller import ChatController
from kernelwright.graphs.conversation.graph import Conversation, MessageContext
from kernelwright.graphs.search.context import Circumstances
from kernelwright.profiles.load import ModelProfile

FILE = Attachment(name="toy.py", text="import torch\n\ndef forward(x):\n    return x\n")
Talk = Callable[..., object]


@pytest.fixture
async def search_manager(toy: ModuleType, tmp_path: Path) -> AsyncIterator[SearchManager]:
    def agents(around: Circumstances) -> AgentSet:
        return toy.toy_agents(toy.LOOPS)

    found = SearchManager(
        tmp_path, target="cpu", make_executor=lambda *_: toy.ToyExecutor(), make_agents=agents
    )
    yield found
    await found.aclose()


@pytest.fixture
def controller(search_manager: SearchManager, tmp_path: Path) -> ChatController:
    return ChatController(
        tmp_path, search_manager, "ada", "t", Settings(target="cpu", search="quick")
    )


@pytest.fixture
def talk(controller: ChatController) -> Talk:
    """Say something and get the answers."""
    conversation = Conversation()

    async def said(text: str, *files: Attachment) -> list[ChatReply]:
        message = MessageContext(controller, RulesAssistant(), text, files)
        return [reply async for reply in conversation.hear("t", message)]

    return said


@pytest.fixture
def calling() -> Iterator[Callable[..., object]]:
    """Start servers that call tools."""
    path = Path(__file__).parents[2] / "agents" / "assistant" / "calling_server.py"
    spec = importlib.util.spec_from_file_location("calling_server_here", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    started = []

    def start(*replies: object) -> object:
        started.append(module.CallingServer(*replies))
        return started[-1]

    yield start
    for server in started:
        server.close()


async def ended(search_manager: SearchManager) -> None:
    async with asyncio.timeout(240):
        await asyncio.gather(
            *(asyncio.wrap_future(search_session.done) for search_session in search_manager.going)
        )


async def test_the_story_from_a_file_to_a_download(
    controller: ChatController, search_manager: SearchManager, talk: Talk
) -> None:
    (card,) = await talk("make this faster please", FILE)
    assert card.question
    assert controller.task is not None
    await talk("no half precision")
    (begun,) = await talk("yes, two rounds")
    assert controller.run, begun.text
    await ended(search_manager)
    for text in ("status", "explain the best", "show me the code", "why is v2 faster than v1?"):
        for reply in await talk(text):
            assert reply.pieces, text
            assert "cannot do that yet" not in reply.text, text
    (asked,) = await talk("can I take it home?")
    assert asked.question
    answers = await talk("yes")
    assert any(isinstance(piece, Download) for reply in answers for piece in reply.pieces)


async def test_every_kind_of_command_has_an_answer_before_during_and_after(
    controller: ChatController, search_manager: SearchManager, talk: Talk
) -> None:
    questions = (
        "hi", "status", "what is the floor?", "show the code", "show the profile",
        "show the ledger", "explain round 1", "explain v1", "compare v1 and v2", "show my hints",
        "list my runs", "focus on one pass", "pause", "stop", "export it", "flurb the wozzle",
        "is there a gpu here?", "continue", "open run nothing-0000-xx", "change the shapes",
    )  # fmt: skip
    for text in questions:
        assert await talk(text), text
    await talk("", FILE)
    for text in questions[:12]:
        assert await talk(text), text
    await talk("go")
    await ended(search_manager)
    for text in questions:
        assert await talk(text), text
    await ended(search_manager)


async def test_steering_said_before_the_search_holds_in_it(
    controller: ChatController, search_manager: SearchManager, talk: Talk
) -> None:
    await talk("faster, but avoid shared memory", FILE)
    await talk("go")
    (shown,) = await talk("what is banned?")
    assert "shared memory" in str(shown)
    await ended(search_manager)


async def test_a_model_talks_over_the_same_controller(
    controller: ChatController,
    search_manager: SearchManager,
    talk: Talk,
    calling: Callable[..., object],
) -> None:
    await talk("", FILE)
    await talk("go")
    await ended(search_manager)
    server = calling([("show_progress", "{}")], "It is done: [see](http://nowhere.example).")
    profile = ModelProfile(name="loopback", model="tiny", base_url=server.base_url)
    message = MessageContext(
        controller, assistant_for(profile), "and what do you make of all that?"
    )
    answers = [reply async for reply in Conversation().hear("t", message)]
    assert len(answers) == 2
    assert answers[0].pieces
    assert answers[1].text == "It is done: see."
    told = server.requests[1]["messages"][-1]["content"]
    assert answers[0].text.splitlines()[0] in told
