"""The conversation as a graph: understand what was said, do it, perhaps look again, and answer.

understand -> act -> (understand again, a bounded number of times) -> say. What is remembered is
small: the last exchanges and the question that is open; everything else is the controller's.
Answers are told as soon as there are any. Not here: how words are understood (`agents.assistant`),
and how a command is carried out (`graphs.conversation`).
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langsmith import tracing_context

from kernelwright.agents.assistant.parsing.budgets import limits_beforehand
from kernelwright.agents.assistant.parsing.text import take_apart
from kernelwright.agents.assistant.rules import urgent
from kernelwright.agents.assistant.types import (
    Assistant,
    Attachment,
    ChangeTask,
    ChatReply,
    Command,
    CommandResult,
    LoadTask,
    Offer,
    StartSearch,
    Steer,
    Turn,
)

# How often a model may look at what was done and ask for more; rules never do.
LOOKS = 4
# What the model may take for one message, tokens in and out of all its questions together.
MAX_TOKENS, MAX_SECONDS = 60_000, 180.0
# A turn's commands; more than these are a model's mistake.
MAX_COMMANDS = 12
REMEMBERED = 12
# Of what was said, this much is remembered.
SHORT = 2_000
STEPS = 4 * (LOOKS + 2)
NOTHING_SAID = "I have nothing to add to that."
TOO_MUCH = "That is as far as I go in one answer; tell me how to go on."


class Controller(Protocol):
    """Carries out commands; one a conversation."""

    async def do(self, command: Command) -> ChatReply:
        """Carry a command out, and say what came of it."""
        ...

    def turn(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        """What the person said, with what it may be about."""
        ...


@dataclass
class MessageContext:
    """One message, or one button, and who deals with it; nothing of it is stored.

    `command` is a button's: nothing has to be understood then, and `text` is its label.
    """

    controller: Controller
    assistant: Assistant
    text: str
    attachments: tuple[Attachment, ...] = ()
    command: Command | None = None
    pending: list[Command] = field(default_factory=list)
    done: list[CommandResult] = field(default_factory=list)
    said: list[ChatReply] = field(default_factory=list)
    looks: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Memory(TypedDict, total=False):
    """What a conversation remembers between messages.

    Attributes:
        earlier: The last exchanges as (person, answer) pairs.
        offers: The buttons of the question that is open, each as JSON.
    """

    earlier: list[list[str]]
    offers: list[str]


ConversationGraph = CompiledStateGraph[Memory, MessageContext, Memory, Memory]


def build_conversation(
    checkpointer: BaseCheckpointSaver[str] | None = None,
) -> ConversationGraph:
    """The graph, ready to hear."""
    graph = StateGraph(Memory, context_schema=MessageContext)
    graph.add_node("understand", understand)
    graph.add_node("act", act)
    graph.add_node("say", say)
    graph.add_edge(START, "understand")
    graph.add_conditional_edges("understand", after_understanding)
    graph.add_conditional_edges("act", after_act)
    graph.add_edge("say", END)
    return graph.compile(checkpointer=checkpointer)


class Conversation:
    """Hears messages and buttons; those of one thread wait for each other.

    A button, and an order to pause, stop or steer, do not wait for a model that is still thinking
    about something else; they are done at once and not remembered.

    Args:
        checkpointer: Where memories are kept; without one they end with the process.
    """

    def __init__(self, checkpointer: BaseCheckpointSaver[str] | None = None) -> None:
        self._graph = build_conversation(checkpointer or InMemorySaver())
        # A thread's lock is there as long as somebody holds it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def hear(self, thread: str, message: MessageContext) -> AsyncIterator[ChatReply]:
        """Answer one message or button; answers come as soon as there are any.

        Raises:
            Exception: What the controller or the assistant raised; the memory is as it was before.
        """
        turn = self._turns.setdefault(thread, asyncio.Lock())
        if turn.locked() and (commands := _urgent(message)):
            for command in commands:
                yield await message.controller.do(command)
            return
        config: RunnableConfig = {"configurable": {"thread_id": thread}, "recursion_limit": STEPS}
        async with turn:
            with tracing_context(enabled=False):  # nothing goes to a tracing service
                async for reply in self._graph.astream(
                    {}, config, context=message, stream_mode="custom", durability="exit"
                ):
                    if isinstance(reply, ChatReply):
                        yield reply


async def understand(state: Memory, runtime: Runtime[MessageContext]) -> Memory:
    """Ask the assistant what is to be done next; a button says so itself."""
    message = runtime.context
    if message.command is not None:
        message.pending = [message.command]
        return {}
    message.looks += 1
    turn = message.controller.turn(message.text, message.attachments).model_copy(
        update={"earlier": _earlier(state), "offers": _offers(state)}
    )
    found = await message.assistant.understand(turn, tuple(message.done))
    message.tokens += found.tokens
    message.seconds += found.seconds
    commands = _with_beforehand(found.commands, message.text)
    message.pending = list(commands[: MAX_COMMANDS - len(message.done)])
    if found.words:
        _tell(runtime, ChatReply.of(found.words))
    return {}


async def act(state: Memory, runtime: Runtime[MessageContext]) -> Memory:
    """Do the next command; what would follow an open question waits for its answer."""
    message = runtime.context
    command = message.pending.pop(0)
    reply = await message.controller.do(command)
    message.done.append(CommandResult(command=command, reply=reply))
    if reply.question:
        message.pending = _before_an_answer(command, message.pending)
    if not (reply.question and message.pending and _supersedes(message.pending[0])):
        _tell(runtime, reply)
    return {}


async def say(state: Memory, runtime: Runtime[MessageContext]) -> Memory:
    """Remember what was said; an answer without words is none."""
    message = runtime.context
    if not message.said:
        _tell(runtime, ChatReply.of(NOTHING_SAID))
    elif message.looks >= LOOKS and message.command is None and _may_look(message):
        _tell(runtime, ChatReply.of(TOO_MUCH))
    answer = "\n\n".join(reply.text for reply in message.said)
    exchange = [message.text[:SHORT], answer[:SHORT]]
    last = message.said[-1]
    offers = [offer.model_dump_json() for offer in last.offers] if last.question else []
    return {"earlier": [*state.get("earlier", []), exchange][-REMEMBERED:], "offers": offers}


def _with_beforehand(commands: tuple[Command, ...], text: str) -> tuple[Command, ...]:
    """A depth or a time in the message that brings a file belongs to its card's first button."""
    begun = next((item for item in commands if isinstance(item, StartSearch)), None)
    if begun is None:
        limits = limits_beforehand(take_apart(text).words)
        said = limits.model_dump(exclude={"more", "from_now"}, exclude_none=True)
        begun = StartSearch.model_validate(said)
    return tuple(
        item.model_copy(update={"begin": begun}) if isinstance(item, LoadTask) else item
        for item in commands
    )


def after_understanding(state: Memory, runtime: Runtime[MessageContext]) -> Literal["act", "say"]:
    """Something is to be done, or everything is answered."""
    return "act" if runtime.context.pending else "say"


def after_act(
    state: Memory, runtime: Runtime[MessageContext]
) -> Literal["act", "understand", "say"]:
    """The next command, another look at what was done, or the end."""
    message = runtime.context
    if message.pending:
        return "act"
    return "understand" if _may_look(message) and message.looks < LOOKS else "say"


def _urgent(message: MessageContext) -> tuple[Command, ...]:
    if message.command is not None:
        return (message.command,)
    return urgent(message.controller.turn(message.text)) if not message.attachments else ()


def _may_look(message: MessageContext) -> bool:
    """An open question is the person's to answer, and a button wants no comment."""
    asked = any(outcome.reply.question for outcome in message.done)
    return (
        message.command is None
        and bool(message.done)
        and not asked
        and len(message.done) < MAX_COMMANDS
        and message.tokens < MAX_TOKENS
        and message.seconds < MAX_SECONDS
    )


def _tell(runtime: Runtime[MessageContext], reply: ChatReply) -> None:
    runtime.context.said.append(reply)
    runtime.stream_writer(reply)


def _before_an_answer(command: Command, pending: list[Command]) -> list[Command]:
    """A search waits until its card was seen; a change of the task belongs to the card itself.

    A wish that comes too late asks whether to go on; what else was said does not wait for that.
    """
    if isinstance(command, Steer):
        return pending
    about_task = isinstance(command, LoadTask | ChangeTask)
    return [item for item in pending if about_task and not isinstance(item, StartSearch | LoadTask)]


def _supersedes(command: Command) -> bool:
    """Whether what comes next answers with a card of its own."""
    return isinstance(command, ChangeTask)


def _earlier(state: Memory) -> tuple[tuple[str, str], ...]:
    return tuple((said, answer) for said, answer in state.get("earlier", []))


def _offers(state: Memory) -> tuple[Offer, ...]:
    return tuple(Offer.model_validate_json(text) for text in state.get("offers", []))
