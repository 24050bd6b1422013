"""Answers of a recorded run, said again."""

import pytest

from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.llm.wrappers import ReplayingClient
from kernelwright.tools.archive import NotRecordedError
from kernelwright.tools.types import Call, Message, Prompt, Reply


def prompt(key: str, text: str = "words", round: int = 2) -> Prompt:
    said = (Message(author="person", text=text),)
    return Prompt(key=key, role="planner", messages=said, round=round)


def call(key: str, answer: str, text: str = "words") -> Call:
    return Call(prompt=prompt(key, text), reply=Reply(text=answer))


async def test_the_last_answer_to_the_same_words_is_the_one_the_run_went_on_with() -> None:
    lost = Call(prompt=prompt("planner:2"), failure="the server is away")
    other = call("planner:2", "to other words", text="other words")
    client = ReplayingClient([lost, call("planner:2", "at last"), other])
    assert (await client.say(prompt("planner:2"))).text == "at last"
    assert (await client.say(prompt("planner:2", "other words"))).text == "to other words"
    assert client.reworded == []


async def test_what_failed_then_fails_again_in_the_same_words() -> None:
    client = ReplayingClient([Call(prompt=prompt("planner:2"), failure="the server is away")])
    with pytest.raises(LLMError, match="the server is away"):
        await client.say(prompt("planner:2"))


async def test_a_reworded_question_is_answered_by_its_key_and_remembered() -> None:
    client = ReplayingClient([call("planner:2", "an answer")])
    assert (await client.say(prompt("planner:2", "better words"))).text == "an answer"
    assert client.reworded == ["planner:2"]


async def test_what_the_run_never_asked_has_no_answer() -> None:
    with pytest.raises(NotRecordedError, match="planner:3"):
        await ReplayingClient([call("planner:2", "an answer")]).say(prompt("planner:3", round=3))


async def test_before_models_joined_the_playbook_thinks() -> None:
    with pytest.raises(LLMError):
        await ReplayingClient([call("planner:2", "an answer")]).say(prompt("planner:1", round=1))
