import asyncio

import pytest

from kernelwright.agents.llm.client import LLMError, TokenBudget
from kernelwright.agents.llm.wrappers import (
    ClientContext,
    LimitedClient,
    RecordingClient,
    ReplayingClient,
    clients_for,
)
from kernelwright.agents.roles import ROLES
from kernelwright.profiles.load import ModelProfile, Models
from kernelwright.tools.types import Call, Message, Prompt, Reply
from kernelwright.tools.types.run import TokenCounts
from kernelwright.tools.types.value import AwaitingError

PROMPT = Prompt(
    key="planner:1", role="planner", messages=(Message(author="person", text="Which?"),)
)


class Notebook:
    """A book in memory."""

    def __init__(self) -> None:
        self.kept: list[Call] = []

    def calls(self, key: str | None = None) -> tuple[Call, ...]:
        return tuple(call for call in self.kept if key in (None, call.prompt.key))

    def record_call(self, call: Call) -> None:
        self.kept.append(call)


class Answers:
    """Says what it was given, in turn, or raises it."""

    def __init__(self, *given: str | Exception) -> None:
        self.given = list(given)

    async def say(self, prompt: Prompt) -> Reply:
        next_one = self.given.pop(0)
        if isinstance(next_one, Exception):
            raise next_one
        return Reply(text=next_one, attempts=2)


async def test_nothing_is_asked_twice() -> None:
    book, told = Notebook(), []
    first = await RecordingClient(Answers("this"), book, told.append).say(PROMPT)
    again = await RecordingClient(Answers(), book, told.append).say(PROMPT)
    assert first == again
    assert told == book.kept == [Call(prompt=PROMPT, reply=first)]


async def test_other_words_under_the_same_key_are_another_question() -> None:
    book = Notebook()
    await RecordingClient(Answers("this"), book).say(PROMPT)
    other = PROMPT.model_copy(update={"messages": (Message(author="person", text="And now?"),)})
    assert (await RecordingClient(Answers("that"), book).say(other)).text == "that"
    assert (await RecordingClient(Answers(), book).say(PROMPT)).text == "this"


async def test_a_failure_is_kept_and_asked_again() -> None:
    book, lost = Notebook(), TokenCounts(input=3, output=4)
    client = RecordingClient(Answers(LLMError("it is gone", lost, 0.5), "back"), book)
    with pytest.raises(LLMError, match="it is gone"):
        await client.say(PROMPT)
    assert book.kept == [Call(prompt=PROMPT, failure="it is gone", lost=lost, lost_usd=0.5)]
    assert (await client.say(PROMPT)).text == "back"


async def test_who_is_awaited_has_not_failed() -> None:
    book = Notebook()
    with pytest.raises(AwaitingError):
        await RecordingClient(Answers(AwaitingError("write it down")), book).say(PROMPT)
    assert book.kept == []


async def test_one_model_is_one_client_and_a_person_is_another() -> None:
    asked: list[ModelProfile] = []

    def manual(profile: ModelProfile) -> Answers:
        asked.append(profile)
        return Answers("by hand")

    model = ModelProfile(name="m", model="m", base_url="http://127.0.0.1:1/v1")
    person = ModelProfile(name="manual", kind="manual")
    models = Models.same(model).model_copy(update={"critic": person})
    book = Notebook()
    clients = clients_for(
        models, ROLES.names, ClientContext(book=book, budget=TokenBudget(), manual=manual)
    )
    assert clients["planner"] is clients["coder"] is clients["profiler"] is clients["strategist"]
    assert clients["critic"] is not clients["planner"]
    assert asked == [person]
    assert (await clients["critic"].say(PROMPT)).text == "by hand"
    assert len(book.kept) == 1


async def test_a_question_is_given_up_when_the_seconds_are_over_and_kept_as_a_failure() -> None:
    class Slow:
        async def say(self, prompt: Prompt) -> Reply:
            await asyncio.sleep(60)
            return Reply(text="too late")

    book = Notebook()
    limited = RecordingClient(LimitedClient(Slow(), lambda: 0.05), book)
    with pytest.raises(LLMError, match="seconds were over"):
        await limited.say(PROMPT)
    (kept,) = book.kept
    assert kept.failure == LimitedClient.WORDS
    with pytest.raises(LLMError, match="seconds were over"):  # and a replay says the same
        await ReplayingClient(book.kept).say(PROMPT)


async def test_a_question_without_a_limit_or_within_it_is_answered() -> None:
    for left_s in (None, 5.0):
        client = LimitedClient(Answers("in time"), lambda left_s=left_s: left_s)
        assert (await client.say(PROMPT)).text == "in time"
