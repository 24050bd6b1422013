import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from kernelwright.agents.llm.answers import Answered, answer
from kernelwright.agents.llm.client import LLMError
from kernelwright.tools.types import Message, Prompt, Reply

PROMPT = Prompt(
    key="planner:1", role="planner", messages=(Message(author="person", text="Which ideas?"),)
)


class Thought(BaseModel):
    title: str = Field(description="a few words")
    predicted_ms: float | None = None
    tags: tuple[str, ...] = ()


class Thoughts(BaseModel):
    model_config = {"extra": "forbid"}

    thoughts: tuple[Thought, ...] = Field(min_length=1)
    why: str = ""


GOOD = {"thoughts": [{"title": "tile {x}", "predicted_ms": 1.5}, {"title": "fuse"}], "why": "so"}
TEXT = json.dumps(GOOD)


class Parrot:
    """Says what it was given, in turn, and keeps what it was asked."""

    def __init__(self, *texts: str, finish: str = "stop") -> None:
        self.texts = list(texts)
        self.finish = finish
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        return Reply(text=self.texts.pop(0), model="parrot", finish=self.finish)


async def ask(*texts: str, schema: type[BaseModel] = Thoughts) -> Answered[BaseModel]:
    return await answer(Parrot(*texts), PROMPT, schema)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        json.dumps(GOOD, indent=2),
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"Sure! Here you are:\n```json\n{TEXT}\n```\nLet me know.",
        f"Sure: ```json\n{TEXT}```",
        f"```markdown\nMy answer:\n```json\n{TEXT}\n```\n```",
        f"```json\n{TEXT}",
        f"<think>maybe {{'thoughts': 1}} or so</think>{TEXT}",
        f"a thought whose beginning the template took\n</think>\n\n{TEXT}",
        f"<think>\n{TEXT}",
        f"I thought of {{braces}} and [lists] first.\n{TEXT}\nThat is all, {{really}}.",
        TEXT.replace('"so"}', '"so",}').replace("fuse", "fuse"),
        TEXT.replace('"why"', '// why it is so\n"why"'),
        str(GOOD),
        str({**GOOD, "why": None}).replace("'why': None", "'why': 'so'"),
        TEXT.replace('"so"', '"so\nand so"').replace("\\n", "\n"),
        f'<tool_call>{{"name": "answer", "arguments": {TEXT}}}</tool_call>',
        json.dumps({"name": "answer", "arguments": TEXT}),
        json.dumps([{"type": "function", "function": {"name": "a", "arguments": TEXT}}]),
        f'[TOOL_CALLS] [{{"name": "answer", "arguments": {TEXT}}}]',
        f"<function=answer>{TEXT}</function>",
        json.dumps({"answer": GOOD}),
        json.dumps([GOOD]),
        f"As https://example.org says: {TEXT} and so on",
        f"{json.dumps({'thoughts': [], 'why': 'a first try'})}\nNo, better:\n{TEXT}",
    ],
)
async def test_an_answer_is_read_whatever_is_around_it(text: str) -> None:
    found = await ask(text)
    assert isinstance(found.value, Thoughts)
    assert [item.title for item in found.value.thoughts] == ["tile {x}", "fuse"]
    assert found.value.thoughts[0].predicted_ms == 1.5
    assert found.value.why.startswith("so")


@pytest.mark.parametrize("kept", range(40, len(TEXT) - 1))
async def test_an_answer_that_broke_off_is_used_as_far_as_it_goes(kept: int) -> None:
    found = await ask(TEXT[:kept])
    assert isinstance(found.value, Thoughts)
    assert found.value.thoughts[0].title == "tile {x}"
    assert found.notes == ("the answer broke off; what there was of it is used",)


async def test_what_the_schema_does_not_know_is_left_out_and_said() -> None:
    found = await ask(json.dumps({**GOOD, "confidence": 0.9}))
    assert isinstance(found.value, Thoughts)
    assert found.notes == ("left out of the answer: confidence",)


async def test_a_model_sees_its_own_text_and_the_error_once() -> None:
    wrong = TEXT.replace("1.5", '"about 1.5 ms"')
    client = Parrot(wrong, TEXT)
    found = await answer(client, PROMPT, Thoughts)
    assert found.value.why == "so"
    first, again = client.asked
    assert again.key == "planner:1:again"
    assert again.messages[: len(first.messages)] == first.messages
    assert again.messages[-2].author == "model"
    assert again.messages[-2].text == wrong
    assert "thoughts.0.predicted_ms" in again.messages[-1].text
    assert "about 1.5 ms" in again.messages[-1].text
    assert found.notes[0].startswith("the first answer could not be read")


async def test_a_model_is_told_that_it_was_cut_off() -> None:
    client = Parrot("I would say that", TEXT, finish="length")
    await answer(client, PROMPT, Thoughts)
    assert "shorter" in client.asked[1].messages[-1].text


@pytest.mark.parametrize(
    "texts",
    [
        ("I cannot help with that.", "As I said."),
        ("", ""),
        ("{" * 5000, "[" * 5000),
        ('{"thoughts": []}', '{"other": 1}'),
        ("[1, 2]", "```json\n```"),
        ("{'a': " * 50, "\x00\ufffd"),
    ],
)
async def test_two_unreadable_answers_are_a_llm_error(texts: tuple[str, str]) -> None:
    with pytest.raises(LLMError, match=r"parrot did not answer planner:1 in the form"):
        await ask(*texts)


PIECES = st.sampled_from(
    [
        TEXT, TEXT[:60], TEXT[60:], "```json\n", "```", "\n", "<think>", "</think>", "{", "}", "[",
        "]", '"', "'", ",", ":", "\\", '{"thoughts":', '{"arguments":', "[[[[", "]]]]", "//", "/*",
        "*/", "null", "None", "1e999", "NaN", "9" * 5000, "\x00", "\ud83d", "(", "b'", "{1: 2}",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=8), max_size=14).map("".join))
def test_whatever_a_model_writes_is_an_answer_or_a_llm_error(text: str) -> None:
    try:
        found = asyncio.run(ask(text, text))
    except LLMError:
        return
    assert isinstance(found.value, Thoughts)


@pytest.mark.parametrize("text", ["[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900])
async def test_deep_nesting_is_unreadable_and_nothing_worse(text: str) -> None:
    with pytest.raises(LLMError):
        await ask(text, text)


async def test_the_shape_is_in_the_prompt_and_the_schema_beside_it() -> None:
    client = Parrot(TEXT)
    await answer(client, PROMPT, Thoughts)
    (asked,) = client.asked
    words = asked.messages[-1].text
    assert words.startswith("Which ideas?")
    assert '"title": string,  // a few words' in words
    assert '"predicted_ms": number or null,  // may be left out' in words
    assert "at least 1 of them" in words
    assert json.loads(asked.answer_schema)["properties"]["why"]["type"] == "string"
    assert asked.key == PROMPT.key
