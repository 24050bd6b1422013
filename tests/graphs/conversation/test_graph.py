"""The conversation graph, with a controller that notes what it is asked and answers at once."""

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
from kernelwright.graphs.conversation.graph import (
    LOOKS,
    TOO_MUCH,
    Conversation,
    MessageContext,
)

MODULE = Attachment(name="softmax.py", text="import torch\n\ndef softmax(x):\n    return x\n")
OFFERS = (
    Offer(label="Go", wish=StartSearch()),
    Offer(label="Change shapes", wish=ChangeTask()),
    Offer(label="Cancel", wish=CancelTask()),
)


class NotingController:
    """Answers every command with its kind; a task's card is a question."""

    def __init__(self, **turn: object) -> None:
        self.known = turn
        self.commands: list[Command] = []

    async def do(self, command: Command) -> ChatReply:
        self.commands.append(command)
        await asyncio.sleep(0)
        if isinstance(command, LoadTask | ChangeTask):
            self.known |= {"task": "softmax"}
            return ChatReply.of(f"card after {command.kind}", *OFFERS).model_copy(
                update={"question": True}
            )
        return ChatReply.of(f"did {command.kind}")

    def turn(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        return Turn.model_validate({"text": text, "attachments": attachments, **self.known})


class Restless:
    """Wants one thing more whenever it is asked; keeps what it was shown."""

    def __init__(self, *commands: Command, words: str = "") -> None:
        self.commands = commands
        self.words = words
        self.turns: list[Turn] = []
        self.seen: list[tuple[CommandResult, ...]] = []

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        self.turns.append(turn)
        self.seen.append(done)
        if len(done) < len(self.commands):
            return Understanding(commands=(self.commands[len(done)],))
        return Understanding(commands=(), words=self.words)


Hear = Callable[..., object]


@pytest.fixture
def hear() -> Hear:
    """Say something in a conversation and get the answers' words."""
    conversation = Conversation()

    async def said(
        controller: NotingController,
        text: str,
        *,
        assistant: object = None,
        thread: str = "t",
        files: tuple[Attachment, ...] = (),
        command: Command | None = None,
        through: Conversation = conversation,
    ) -> list[str]:
        message = MessageContext(controller, assistant or RulesAssistant(), text, files, command)
        return [reply.text async for reply in through.hear(thread, message)]

    return said


async def test_an_attached_file_is_loaded_and_its_card_asked_about(hear: Hear) -> None:
    controller = NotingController()
    answers = await hear(controller, "make this softmax faster on my L40S", files=(MODULE,))
    assert controller.commands == [LoadTask(source=MODULE.text, name="softmax.py", gpu="L40S")]
    assert answers == ["card after load_task"]


async def test_yes_takes_the_first_offer_of_the_open_question(hear: Hear) -> None:
    controller = NotingController()
    await hear(controller, "", files=(MODULE,))
    await hear(controller, "yes please")
    assert controller.commands[-1] == StartSearch()


@pytest.mark.parametrize(
    ("text", "search", "seconds"),
    [
        ("a deep search, take up to 6 minutes", "deep", 360.0),
        ("give it 10 minutes", None, 600.0),
        ("make this faster, a deep search", "deep", None),
        ("make this faster and take up to 6 minutes", None, 360.0),
        ("mach das schneller, gründlich bitte", "deep", None),
        ("mach das schneller, höchstens 2 Minuten", None, 120.0),
        ("Bitte schneller, eine gründliche Suche, höchstens 2 Minuten.", "deep", 120.0),
        ("speed this up, quick please", "quick", None),
        ("it takes 2 seconds per call, make it fast", None, None),
        ("make this big deep network faster", None, None),
    ],
)
async def test_a_depth_or_a_time_in_the_first_message_goes_with_the_file(
    hear: Hear, text: str, search: str | None, seconds: float | None
) -> None:
    controller = NotingController()
    await hear(controller, text, files=(MODULE,))
    (load,) = controller.commands
    assert isinstance(load, LoadTask)
    assert load.begin == StartSearch.model_validate({"search": search, "seconds": seconds})


async def test_no_takes_the_offer_that_declines(hear: Hear) -> None:
    controller = NotingController()
    await hear(controller, "", files=(MODULE,))
    await hear(controller, "no")
    assert controller.commands[-1] == CancelTask()


async def test_a_question_that_was_answered_is_no_longer_open(hear: Hear) -> None:
    controller = NotingController()
    await hear(controller, "", files=(MODULE,))
    await hear(controller, "what is the status?")
    await hear(controller, "3")
    assert isinstance(controller.commands[-1], Unclear)


async def test_shapes_said_with_a_file_change_its_card_and_only_that_one_is_shown(
    hear: Hear,
) -> None:
    controller = NotingController()
    answers = await hear(controller, "faster please, for (4096, 1024) fp16", files=(MODULE,))
    assert [command.kind for command in controller.commands] == ["load_task", "change_task"]
    assert answers == ["card after change_task"]


async def test_a_search_waits_until_its_card_was_seen(hear: Hear) -> None:
    controller = NotingController()

    class Hasty:
        async def understand(
            self, turn: Turn, done: tuple[CommandResult, ...] = ()
        ) -> Understanding:
            return Understanding(commands=(LoadTask(source="x"), StartSearch(rounds=2)))

    await hear(controller, "do it all", assistant=Hasty())
    (load,) = controller.commands
    assert load == LoadTask(source="x", begin=StartSearch(rounds=2))


async def test_several_commands_are_done_in_their_order(hear: Hear) -> None:
    controller = NotingController(run="r", running=True)
    answers = await hear(controller, "pause and show me the code of v3")
    assert controller.commands == [PauseSearch(), ShowCode(candidate="v3")]
    assert answers == ["did pause_search", "did show_code"]


async def test_without_a_file_it_says_what_it_needs(hear: Hear) -> None:
    controller = NotingController()
    assert await hear(controller, "make this softmax faster") == [NEEDS_A_FILE]
    assert controller.commands == []


async def test_a_button_is_done_without_being_understood(hear: Hear) -> None:
    controller, assistant = NotingController(), Restless(ShowCode())
    answers = await hear(controller, "Show progress", command=ShowProgress(), assistant=assistant)
    assert answers == ["did show_progress"]
    assert assistant.turns == []


async def test_a_model_may_look_at_answers_and_go_on(hear: Hear) -> None:
    controller = NotingController(run="r")
    assistant = Restless(ShowProgress(), ExplainCandidate(), words="It reads once.")
    answers = await hear(controller, "why?", assistant=assistant)
    assert answers == ["did show_progress", "did explain_candidate", "It reads once."]
    assert [len(done) for done in assistant.seen] == [0, 1, 2]
    assert assistant.seen[1][0].reply.text == "did show_progress"


async def test_looking_again_is_bounded_and_said(hear: Hear) -> None:
    controller = NotingController(run="r")
    answers = await hear(controller, "why?", assistant=Restless(*[ShowProgress()] * 50))
    assert len(controller.commands) == LOOKS
    assert answers[-1] == TOO_MUCH


async def test_a_model_does_not_answer_the_question_that_a_person_was_asked(hear: Hear) -> None:
    controller = NotingController()
    await hear(controller, "go", assistant=Restless(LoadTask(source="x"), StartSearch()))
    assert [command.kind for command in controller.commands] == ["load_task"]


async def test_the_conversation_remembers_its_last_exchanges(hear: Hear) -> None:
    controller, assistant = NotingController(run="r"), Restless(ShowProgress(), words="Fine.")
    await hear(controller, "how is v7?")
    await hear(controller, "and now?", assistant=assistant)
    assert assistant.turns[0].earlier == (("how is v7?", "did explain_candidate"),)


async def test_threads_do_not_hear_each_other(hear: Hear) -> None:
    controller, assistant = NotingController(run="r"), Restless(words="Nothing.")
    await hear(controller, "how is v7?", thread="one")
    await hear(controller, "and now?", thread="two", assistant=assistant)
    assert assistant.turns[0].earlier == ()


async def test_two_messages_of_one_thread_wait_for_each_other(hear: Hear) -> None:
    controller = NotingController(run="r", running=True)
    await asyncio.gather(*(hear(controller, "status", thread="t") for _ in range(5)))
    assistant = Restless(words="Fine.")
    await hear(controller, "and?", assistant=assistant)
    assert len(assistant.turns[0].earlier) == 5


async def test_an_order_does_not_wait_for_a_model_that_is_thinking(hear: Hear) -> None:
    thinking, answered = asyncio.Event(), asyncio.Event()

    class Thoughtful:
        async def understand(
            self, turn: Turn, done: tuple[CommandResult, ...] = ()
        ) -> Understanding:
            thinking.set()
            await answered.wait()
            return Understanding(commands=(), words="At last.")

    controller = NotingController(run="r", running=True)
    slow = asyncio.create_task(hear(controller, "what do you think of it?", assistant=Thoughtful()))
    await thinking.wait()
    assert await hear(controller, "pause", assistant=Thoughtful()) == ["did pause_search"]
    assert await hear(controller, "no half precision", assistant=Thoughtful()) == ["did steer"]
    assert await hear(controller, "Show the code", command=ShowCode()) == ["did show_code"]
    waiting = asyncio.create_task(hear(controller, "and status?"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    answered.set()
    assert await slow == ["At last."]
    assert await waiting == ["did show_progress"]


async def test_what_is_open_survives_a_restart_of_the_server(hear: Hear, tmp_path: Path) -> None:
    controller = NotingController()
    for text, files in (("", (MODULE,)), ("go", ())):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "talk.db")) as saver:
            await hear(controller, text, files=files, through=Conversation(saver))
    assert controller.commands[-1] == StartSearch()


async def test_a_controller_that_fails_leaves_the_memory_as_it_was(hear: Hear) -> None:
    class Broken(NotingController):
        async def do(self, command: Command) -> ChatReply:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await hear(Broken(), "status")
    assistant = Restless(words="Fine.")
    assert await hear(NotingController(), "and?", assistant=assistant) == ["Fine."]
    assert assistant.turns[0].earlier == ()
