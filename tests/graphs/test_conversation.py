"""The conversation graph, with a desk that notes what it is asked and answers at once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from kernelwright.agents.assistant.rules import NEEDS_A_FILE, RulesAssistant
from kernelwright.agents.assistant.types import (
    Attachment,
    CancelTask,
    ChangeTask,
    ChatReply,
    Command,
    CommandResult,
    ExplainCandidate,
    LoadTask,
    Offer,
    PauseSearch,
    ShowCode,
    ShowProgress,
    StartSearch,
    Turn,
    Unclear,
    Understanding,
)
from kernelwright.graphs.conversation.graph import LOOKS, TOO_MUCH, Conversation, MessageContext

MODULE = Attachment(name="softmax.py", text="import torch\n\ndef softmax(x):\n    return x\n")
OFFERS = (
    Offer(label="Go", wish=StartSearch()),
    Offer(label="Change shapes", wish=ChangeTask()),
    Offer(label="Cancel", wish=CancelTask()),
)


class NotingDesk:
    """Answers every wish with its kind; a task's card is a question."""

    def __init__(self, **turn: object) -> None:
        self.known = turn
        self.wishes: list[Command] = []

    async def do(self, wish: Command) -> ChatReply:
        self.wishes.append(wish)
        await asyncio.sleep(0)
        if isinstance(wish, LoadTask | ChangeTask):
            self.known |= {"task": "softmax"}
            return ChatReply.of(f"card after {wish.kind}", *OFFERS).model_copy(
                update={"question": True}
            )
        return ChatReply.of(f"did {wish.kind}")

    def turn(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        return Turn.model_validate({"text": text, "attachments": attachments, **self.known})


class Restless:
    """Wants one thing more whenever it is asked; keeps what it was shown."""

    def __init__(self, *wishes: Command, words: str = "") -> None:
        self.wishes = wishes
        self.words = words
        self.turns: list[Turn] = []
        self.seen: list[tuple[CommandResult, ...]] = []

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        self.turns.append(turn)
        self.seen.append(done)
        if len(done) < len(self.wishes):
            return Understanding(wishes=(self.wishes[len(done)],))
        return Understanding(wishes=(), words=self.words)


Hear = Callable[..., object]


@pytest.fixture
def hear() -> Hear:
    """Say something in a conversation and get the answers' words."""
    conversation = Conversation()

    async def said(
        desk: NotingDesk,
        text: str,
        *,
        assistant: object = None,
        thread: str = "t",
        files: tuple[Attachment, ...] = (),
        wish: Command | None = None,
        through: Conversation = conversation,
    ) -> list[str]:
        visit = MessageContext(desk, assistant or RulesAssistant(), text, files, wish)
        return [saying.text async for saying in through.hear(thread, visit)]

    return said


async def test_an_attached_file_is_loaded_and_its_card_asked_about(hear: Hear) -> None:
    desk = NotingDesk()
    answers = await hear(desk, "make this softmax faster on my L40S", files=(MODULE,))
    assert desk.wishes == [LoadTask(source=MODULE.text, name="softmax.py", gpu="L40S")]
    assert answers == ["card after load_task"]


async def test_yes_takes_the_first_offer_of_the_open_question(hear: Hear) -> None:
    desk = NotingDesk()
    await hear(desk, "", files=(MODULE,))
    await hear(desk, "yes please")
    assert desk.wishes[-1] == StartSearch()


async def test_no_takes_the_offer_that_declines(hear: Hear) -> None:
    desk = NotingDesk()
    await hear(desk, "", files=(MODULE,))
    await hear(desk, "no")
    assert desk.wishes[-1] == CancelTask()


async def test_a_question_that_was_answered_is_no_longer_open(hear: Hear) -> None:
    desk = NotingDesk()
    await hear(desk, "", files=(MODULE,))
    await hear(desk, "what is the status?")
    await hear(desk, "3")
    assert isinstance(desk.wishes[-1], Unclear)


async def test_shapes_said_with_a_file_change_its_card_and_only_that_one_is_shown(
    hear: Hear,
) -> None:
    desk = NotingDesk()
    answers = await hear(desk, "faster please, for (4096, 1024) fp16", files=(MODULE,))
    assert [wish.kind for wish in desk.wishes] == ["load_task", "change_task"]
    assert answers == ["card after change_task"]


async def test_a_search_waits_until_its_card_was_seen(hear: Hear) -> None:
    desk = NotingDesk()

    class Hasty:
        async def understand(
            self, turn: Turn, done: tuple[CommandResult, ...] = ()
        ) -> Understanding:
            return Understanding(wishes=(LoadTask(source="x"), StartSearch(rounds=2)))

    await hear(desk, "do it all", assistant=Hasty())
    assert [wish.kind for wish in desk.wishes] == ["load_task"]
    await hear(desk, "go")
    assert desk.wishes[-1] == StartSearch(rounds=2)  # as was said beforehand


async def test_several_wishes_are_done_in_their_order(hear: Hear) -> None:
    desk = NotingDesk(run="r", running=True)
    answers = await hear(desk, "pause and show me the code of v3")
    assert desk.wishes == [PauseSearch(), ShowCode(candidate="v3")]
    assert answers == ["did pause_search", "did show_code"]


async def test_without_a_file_it_says_what_it_needs(hear: Hear) -> None:
    desk = NotingDesk()
    assert await hear(desk, "make this softmax faster") == [NEEDS_A_FILE]
    assert desk.wishes == []


async def test_a_button_is_done_without_being_understood(hear: Hear) -> None:
    desk, assistant = NotingDesk(), Restless(ShowCode())
    answers = await hear(desk, "Show progress", wish=ShowProgress(), assistant=assistant)
    assert answers == ["did show_progress"]
    assert assistant.turns == []


async def test_a_model_may_look_at_answers_and_go_on(hear: Hear) -> None:
    desk = NotingDesk(run="r")
    assistant = Restless(ShowProgress(), ExplainCandidate(), words="It reads once.")
    answers = await hear(desk, "why?", assistant=assistant)
    assert answers == ["did show_progress", "did explain_candidate", "It reads once."]
    assert [len(done) for done in assistant.seen] == [0, 1, 2]
    assert assistant.seen[1][0].saying.text == "did show_progress"


async def test_looking_again_is_bounded_and_said(hear: Hear) -> None:
    desk = NotingDesk(run="r")
    answers = await hear(desk, "why?", assistant=Restless(*[ShowProgress()] * 50))
    assert len(desk.wishes) == LOOKS
    assert answers[-1] == TOO_MUCH


async def test_a_model_does_not_answer_the_question_that_a_person_was_asked(hear: Hear) -> None:
    desk = NotingDesk()
    await hear(desk, "go", assistant=Restless(LoadTask(source="x"), StartSearch()))
    assert [wish.kind for wish in desk.wishes] == ["load_task"]


async def test_the_conversation_remembers_its_last_exchanges(hear: Hear) -> None:
    desk, assistant = NotingDesk(run="r"), Restless(ShowProgress(), words="Fine.")
    await hear(desk, "how is v7?")
    await hear(desk, "and now?", assistant=assistant)
    assert assistant.turns[0].earlier == (("how is v7?", "did explain_candidate"),)


async def test_threads_do_not_hear_each_other(hear: Hear) -> None:
    desk, assistant = NotingDesk(run="r"), Restless(words="Nothing.")
    await hear(desk, "how is v7?", thread="one")
    await hear(desk, "and now?", thread="two", assistant=assistant)
    assert assistant.turns[0].earlier == ()


async def test_two_messages_of_one_thread_wait_for_each_other(hear: Hear) -> None:
    desk = NotingDesk(run="r", running=True)
    await asyncio.gather(*(hear(desk, "status", thread="t") for _ in range(5)))
    assistant = Restless(words="Fine.")
    await hear(desk, "and?", assistant=assistant)
    assert len(assistant.turns[0].earlier) == 5


async def test_an_order_does_not_wait_for_a_model_that_is_thinking(hear: Hear) -> None:
    thinking, answered = asyncio.Event(), asyncio.Event()

    class Thoughtful:
        async def understand(
            self, turn: Turn, done: tuple[CommandResult, ...] = ()
        ) -> Understanding:
            thinking.set()
            await answered.wait()
            return Understanding(wishes=(), words="At last.")

    desk = NotingDesk(run="r", running=True)
    slow = asyncio.create_task(hear(desk, "what do you think of it?", assistant=Thoughtful()))
    await thinking.wait()
    assert await hear(desk, "pause", assistant=Thoughtful()) == ["did pause_search"]
    assert await hear(desk, "no half precision", assistant=Thoughtful()) == ["did steer"]
    assert await hear(desk, "Show the code", wish=ShowCode()) == ["did show_code"]
    waiting = asyncio.create_task(hear(desk, "and status?"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    answered.set()
    assert await slow == ["At last."]
    assert await waiting == ["did show_progress"]


async def test_what_is_open_survives_a_restart_of_the_server(hear: Hear, tmp_path: Path) -> None:
    desk = NotingDesk()
    for text, files in (("", (MODULE,)), ("go", ())):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "talk.db")) as saver:
            await hear(desk, text, files=files, through=Conversation(saver))
    assert desk.wishes[-1] == StartSearch()


async def test_a_desk_that_fails_leaves_the_memory_as_it_was(hear: Hear) -> None:
    class Broken(NotingDesk):
        async def do(self, wish: Command) -> ChatReply:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await hear(Broken(), "status")
    assistant = Restless(words="Fine.")
    assert await hear(NotingDesk(), "and?", assistant=assistant) == ["Fine."]
    assert assistant.turns[0].earlier == ()
