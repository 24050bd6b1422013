"""The loop against a server: tools offered, results sent back, refusals, and what is recorded."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from kernelwright.agents.llm.client import TokenBudget
from kernelwright.agents.llm.tool_loop import LooseBook, ToolClient
from kernelwright.agents.llm.tools import Tool, tool
from kernelwright.agents.llm.wrappers import (
    RecordingClient,
    ReplayingClient,
    endpoint_client,
)
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Call, Message, Prompt

FILE = Path(__file__).parents[1] / "assistant" / "calling_server.py"


class Word(BaseModel):
    word: str


class Calls:
    def __init__(self) -> None:
        self.kept: list[Call] = []

    def calls(self, key: str | None = None) -> tuple[Call, ...]:
        return tuple(item for item in self.kept if key in (None, item.prompt.key))

    def record_call(self, call: Call) -> None:
        self.kept.append(call)


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calling_server_here", FILE)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["calling_server_here"] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def serve(module: ModuleType) -> Iterator[Callable[..., object]]:
    started = []

    def start(*replies: object, refusal: str = "") -> object:
        started.append(module.CallingServer(*replies, refusal=refusal))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def tools() -> tuple[Tool, ...]:
    async def spell(given: Word) -> str:
        return " ".join(given.word)

    return (tool("spell", "Spells a word.", Word, spell, beforehand=(Word(word="no"),)),)


def profile(server: object) -> ModelProfile:
    known = {"name": "loopback", "model": "tiny", "base_url": server.base_url}
    return ModelProfile.model_validate(known | {"timeout_s": 30.0, "retry_wait_s": 0.01})


def prompt() -> Prompt:
    words = (Message(author="system", text="You spell."), Message(author="person", text="yes?"))
    return Prompt(key="planner:1", role="planner", messages=words)


async def test_results_go_back_as_tool_messages_and_a_replay_asks_nobody(
    serve: Callable[..., object], tools: tuple[Tool, ...]
) -> None:
    server = serve([("spell", '{"word": "yes"}'), ("spell", "{")], "y e s")
    calls, book = Calls(), LooseBook()
    client = RecordingClient(endpoint_client(profile(server), TokenBudget()), calls)
    assert (await ToolClient(client, tools, book).say(prompt())).text == "y e s"
    own, first, second = server.requests[1]["messages"][-3:]
    assert [item["function"]["name"] for item in own["tool_calls"]] == ["spell", "spell"]
    assert [json.loads(item["function"]["arguments"]) for item in own["tool_calls"]] == [
        {"word": "yes"},
        {},
    ]
    assert (first["role"], first["content"]) == ("tool", "y e s")
    assert "no JSON object" in second["content"]
    again = ReplayingClient(calls.kept)
    assert (await ToolClient(again, tools, book).say(prompt())).text == "y e s"
    assert not again.reworded
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        "Unsupported parameter: 'tools'",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ],
)
async def test_a_server_that_refuses_tools_is_told_their_facts(
    serve: Callable[..., object], tools: tuple[Tool, ...], refusal: str
) -> None:
    server = serve("n o", refusal=refusal)
    calls, book = Calls(), LooseBook()
    client = RecordingClient(endpoint_client(profile(server)), calls)
    for number in range(2):
        asked = prompt().model_copy(update={"key": f"planner:{number}"})
        assert (await ToolClient(client, tools, book).say(asked)).text == "n o"
    assert ["tools" in request for request in server.requests] == [True, False, False]
    assert "n o" in server.requests[1]["messages"][-1]["content"]
    again = ReplayingClient(calls.kept)
    asked = prompt().model_copy(update={"key": "planner:0"})
    assert (await ToolClient(again, tools, book).say(asked)).text == "n o"
    assert not again.reworded
