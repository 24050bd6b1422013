"""The loop in which a model calls tools, with scripted models: what is run, told, kept, bounded."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel, Field

from kernelwright.agents.llm.client import LLMError, NoToolsError
from kernelwright.agents.llm.tool_loop import LooseBook, ToolClient, ToolLimits
from kernelwright.agents.llm.tools import Tool, ToolError, tool
from kernelwright.tools.types import Message, Prompt, Reply, ToolCall
from kernelwright.tools.types.run import TokenCounts


class Doubling(BaseModel):
    number: int = Field(description="what to double")


@dataclass
class Script:
    """Answers one line after another; the last one for ever."""

    lines: list[Reply | Exception]
    asked: list[Prompt] = field(default_factory=list)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        line = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        if isinstance(line, Exception):
            raise line
        return line


def calling(name: str, arguments: object, *more: ToolCall) -> Reply:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Reply(text="", calls=(ToolCall(name=name, arguments=given), *more))


def prompt() -> Prompt:
    words = (Message(author="system", text="You count."), Message(author="person", text="2 x 21?"))
    return Prompt(key="coder:r1i1:0", role="coder", messages=words, round=1)


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def tools(ran: list[int]) -> tuple[Tool, ...]:
    async def double(given: Doubling) -> str:
        ran.append(given.number)
        if given.number == 13:
            raise ToolError("13 is not doubled here")
        if given.number == 666:
            raise RuntimeError("a bug of ours")
        if given.number == 60:
            await asyncio.sleep(60)
        return str(2 * given.number)

    about = "Doubles a number."
    return (tool("double", about, Doubling, double, beforehand=(Doubling(number=4),)),)


async def test_what_is_told_of_tools_stands_before_how_to_answer(tools: tuple[Tool, ...]) -> None:
    client = Script([Reply(text="42")])
    words = "2 x 21?\n\n# Your answer\n\nOne number."
    asked = prompt().model_copy(update={"messages": (Message(author="person", text=words),)})
    await ToolClient(client, tools, LooseBook(), "native", ToolLimits()).say(asked)
    text = client.asked[0].messages[-1].text
    assert text.index("2 x 21?") < text.index("# Tools") < text.index("# Your answer")
    assert text.endswith("One number.")


async def test_a_result_comes_back_as_a_tools_message_and_the_answer_after_it(
    tools: tuple[Tool, ...], ran: list[int]
) -> None:
    client = Script([calling("double", {"number": 21}), Reply(text="42")])
    book = LooseBook()
    assert (await ToolClient(client, tools, book).say(prompt())).text == "42"
    assert ran == [21]
    own, result = client.asked[1].messages[-2:]
    assert (own.author, own.calls[0].name) == ("model", "double")
    assert (result.author, result.text, result.call) == ("tool", "42", own.calls[0].id)
    assert [item.key for item in client.asked] == ["coder:r1i1:0", "coder:r1i1:0:tools:1"]
    assert json.loads(client.asked[0].tools)[0]["function"]["name"] == "double"
    assert book.runs["coder:r1i1:0#1"].result == "42"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (calling("treble", {"number": 1}), "there is no tool 'treble'; there are double"),
        (calling("double", '{"number": '), "its arguments are no JSON object"),
        (calling("double", {"number": "many"}), "number: Input should be a valid integer"),
        (calling("double", {}), "number: Field required"),
        (calling("double", {"number": 13}), "13 is not doubled here"),
        (calling("double", {"number": 666}), "says no more than RuntimeError"),
        (calling("double", "[" * 5000), "its arguments are no JSON object"),
        (calling("", ""), "there is no tool ''"),
    ],
)
async def test_a_bad_call_comes_back_in_one_sentence(
    tools: tuple[Tool, ...], reply: Reply, words: str
) -> None:
    client = Script([reply, Reply(text="sorry")])
    assert (await ToolClient(client, tools, LooseBook()).say(prompt())).text == "sorry"
    said = client.asked[1].messages[-1].text
    assert words in said
    assert "\n" not in said
    for call in client.asked[1].messages[-2].calls:
        assert isinstance(json.loads(call.arguments), dict)


async def test_a_call_written_as_text_is_run_and_answered_in_words(
    tools: tuple[Tool, ...], ran: list[int]
) -> None:
    written = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call>'
    client = Script([Reply(text=written), Reply(text="42")])
    assert (await ToolClient(client, tools, LooseBook(), "text").say(prompt())).text == "42"
    assert ran == [21]
    assert not client.asked[0].tools
    assert "- `double`: Doubles a number." in client.asked[0].messages[-1].text
    assert client.asked[1].messages[-1] == Message(
        author="person", text="Result of `double`:\n\n42"
    )


async def test_a_model_without_tools_is_told_the_facts(
    tools: tuple[Tool, ...], ran: list[int]
) -> None:
    client = Script([NoToolsError(), Reply(text="8")])
    assert (await ToolClient(client, tools, LooseBook()).say(prompt())).text == "8"
    assert ran == [4]
    told = client.asked[1]
    assert '## `double` {"number":4}\n\n8' in told.messages[-1].text
    assert not told.tools
    client = Script([Reply(text="8")])
    await ToolClient(client, tools, LooseBook(), "none").say(prompt())
    assert "\n\n8" in client.asked[0].messages[-1].text


async def test_calls_tokens_and_seconds_end_a_loop_with_one_last_question(
    tools: tuple[Tool, ...], ran: list[int]
) -> None:
    replies = [calling("double", {"number": n}) for n in range(100)]
    for limits, runs in (
        (ToolLimits(calls=3), 3),
        (ToolLimits(tokens=250), 2),
        (ToolLimits(seconds=2.5), 2),
    ):
        ran.clear()
        spent = TokenCounts(input=90, output=10)
        costly = [item.model_copy(update={"tokens": spent, "seconds": 1.0}) for item in replies]
        client = Script([*costly])
        last = await ToolClient(client, tools, LooseBook(), limits=limits).say(prompt())
        assert not last.calls
        assert len(ran) <= runs + 1
        assert client.asked[-1].no_calls
        assert "No more tools can be called" in client.asked[-1].messages[-1].text


async def test_a_call_that_takes_too_long_is_ended(tools: tuple[Tool, ...]) -> None:
    client = Script([calling("double", {"number": 60}), Reply(text="too long")])
    limits = ToolLimits(seconds=0.05)
    assert (await ToolClient(client, tools, LooseBook(), limits=limits).say(prompt())).text
    assert "took longer than 0 s" in client.asked[1].messages[-1].text


async def test_a_call_that_is_in_the_book_is_not_run_again(
    tools: tuple[Tool, ...], ran: list[int]
) -> None:
    book = LooseBook()
    for _ in range(2):
        client = Script([calling("double", {"number": 21}), Reply(text="42")])
        await ToolClient(client, tools, book).say(prompt())
        assert client.asked[1].messages[-1].text == "42"
    assert ran == [21]


async def test_the_same_call_twice_in_one_question_is_run_once(
    tools: tuple[Tool, ...], ran: list[int]
) -> None:
    again = calling("double", {"number": 21})
    client = Script([again, again, Reply(text="42")])
    await ToolClient(client, tools, LooseBook()).say(prompt())
    assert ran == [21]
    assert "You called that before" in client.asked[2].messages[-1].text


async def test_a_long_result_loses_its_middle(ran: list[int]) -> None:
    async def talk(given: Doubling) -> str:
        return "a" * 10_000

    talking = tool("talk", "Talks.", Doubling, talk)
    client = Script([calling("talk", {"number": 1}), Reply(text="enough")])
    limits = ToolLimits(result_characters=1000)
    await ToolClient(client, (talking,), LooseBook(), limits=limits).say(prompt())
    assert len(client.asked[1].messages[-1].text) < 1100


async def test_a_server_that_fails_in_the_middle_fails_the_question(
    tools: tuple[Tool, ...],
) -> None:
    client = Script([calling("double", {"number": 1}), LLMError("gone")])
    with pytest.raises(LLMError, match="gone"):
        await ToolClient(client, tools, LooseBook()).say(prompt())


async def test_without_tools_the_client_alone_answers() -> None:
    client = Script([Reply(text="42")])
    assert (await ToolClient(client, (), LooseBook()).say(prompt())).text == "42"
    assert client.asked == [prompt()]
