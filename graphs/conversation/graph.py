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
    Turn,
)

# How often a model may look at what was done and ask for more; rules never do.
LOOKS = 4
# A turn's wishes; more than these are a model's mistake.
MOST_WISHES = 12
REMEMBERED = 12
# Of what was said, this much is remembered.
SHORT = 2_000
STEPS = 4 * (LOOKS + 2)
NOTHING_SAID = "I have nothing to add to that."
TOO_MUCH = "That is as far as I go in one answer; tell me how to go on."


class Desk(Protocol):
    """Where wishes are fulfilled; one a conversation."""

    async def do(self, wish: Command) -> ChatReply:
        """Do what is wished, and say what came of it."""
        ...

    def turn(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        """What the person said, with what it may be about."""
        ...


@dataclass
class MessageContext:
    """One message, or one button, and who deals with it; nothing of it is stored.

    `wish` is a button's: nothing has to be understood then, and `text` is its label.
    """

    desk: Desk
    assistant: Assistant
    text: str
    attachments: tuple[Attachment, ...] = ()
    wish: Command | None = None
    pending: list[Command] = field(default_factory=list)
    done: list[CommandResult] = field(default_factory=list)
    said: list[ChatReply] = field(default_factory=list)
    looks: int = 0


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

    async def hear(self, thread: str, visit: MessageContext) -> AsyncIterator[ChatReply]:
        """Answer one message or button; answers come as soon as there are any.

        Raises:
            Exception: What the desk or the assistant raised; the memory is as it was before.
        """
        turn = self._turns.setdefault(thread, asyncio.Lock())
        if turn.locked() and (wishes := _urgent(visit)):
            for wish in wishes:
                yield await visit.desk.do(wish)
            return
        config: RunnableConfig = {"configurable": {"thread_id": thread}, "recursion_limit": STEPS}
        async with turn:
            with tracing_context(enabled=False):  # nothing goes to a tracing service
                async for saying in self._graph.astream(
                    {}, config, context=visit, stream_mode="custom", durability="exit"
                ):
                    if isinstance(saying, ChatReply):
                        yield saying


async def understand(state: Memory, runtime: Runtime[MessageContext]) -> Memory:
    """Ask the assistant what is to be done next; a button says so itself."""
    visit = runtime.context
    if visit.wish is not None:
        visit.pending = [visit.wish]
        return {}
    visit.looks += 1
    turn = visit.desk.turn(visit.text, visit.attachments).model_copy(
        update={"earlier": _earlier(state), "offers": _offers(state)}
    )
    found = await visit.assistant.understand(turn, tuple(visit.done))
    visit.pending = list(found.wishes[: MOST_WISHES - len(visit.done)])
    if found.words:
        _tell(runtime, ChatReply.of(found.words))
    return {}


async def act(state: Memory, runtime: Runtime[MessageContext]) -> Memory:
    """Do the next wish; what would follow an open question waits for its answer."""
    visit = runtime.context
    wish = visit.pending.pop(0)
    saying = await visit.desk.do(wish)
    visit.done.append(CommandResult(wish=wish, saying=saying))
    if saying.question:
        start = next((item for item in visit.pending if isinstance(item, StartSearch)), None)
        saying = _with_limits(saying, start)
        visit.pending = _before_an_answer(wish, visit.pending)
    if not (saying.question and visit.pending and _supersedes(visit.pending[0])):
        _tell(runtime, saying)
    return {}


async def say(state: Memory, runtime: Runtime[MessageContext]) -> Memory:
    """Remember what was said; an answer without words is none."""
    visit = runtime.context
    if not visit.said:
        _tell(runtime, ChatReply.of(NOTHING_SAID))
    elif visit.looks >= LOOKS and visit.wish is None and _may_look(visit):
        _tell(runtime, ChatReply.of(TOO_MUCH))
    answer = "\n\n".join(saying.text for saying in visit.said)
    exchange = [visit.text[:SHORT], answer[:SHORT]]
    last = visit.said[-1]
    offers = [offer.model_dump_json() for offer in last.offers] if last.question else []
    return {"earlier": [*state.get("earlier", []), exchange][-REMEMBERED:], "offers": offers}


def after_understanding(state: Memory, runtime: Runtime[MessageContext]) -> Literal["act", "say"]:
    """Something is to be done, or everything is answered."""
    return "act" if runtime.context.pending else "say"


def after_act(
    state: Memory, runtime: Runtime[MessageContext]
) -> Literal["act", "understand", "say"]:
    """The next wish, another look at what was done, or the end."""
    visit = runtime.context
    if visit.pending:
        return "act"
    return "understand" if _may_look(visit) and visit.looks < LOOKS else "say"


def _urgent(visit: MessageContext) -> tuple[Command, ...]:
    if visit.wish is not None:
        return (visit.wish,)
    return urgent(visit.desk.turn(visit.text)) if not visit.attachments else ()


def _may_look(visit: MessageContext) -> bool:
    """An open question is the person's to answer, and a button wants no comment."""
    asked = any(deed.saying.question for deed in visit.done)
    return visit.wish is None and bool(visit.done) and not asked and len(visit.done) < MOST_WISHES


def _tell(runtime: Runtime[MessageContext], saying: ChatReply) -> None:
    runtime.context.said.append(saying)
    runtime.stream_writer(saying)


def _before_an_answer(wish: Command, pending: list[Command]) -> list[Command]:
    """A search waits until its card was seen; a change of the task belongs to the card itself."""
    about_task = isinstance(wish, LoadTask | ChangeTask)
    return [item for item in pending if about_task and not isinstance(item, StartSearch | LoadTask)]


def _supersedes(wish: Command) -> bool:
    """Whether what comes next answers with a card of its own."""
    return isinstance(wish, ChangeTask)


def _with_limits(saying: ChatReply, start: StartSearch | None) -> ChatReply:
    """The limits that were named beforehand stand behind the button that begins the search."""
    if start is None or start == StartSearch():
        return saying
    offers = tuple(
        offer.model_copy(update={"wish": start}) if isinstance(offer.wish, StartSearch) else offer
        for offer in saying.offers
    )
    return saying.model_copy(update={"offers": offers})


def _earlier(state: Memory) -> tuple[tuple[str, str], ...]:
    return tuple((said, answer) for said, answer in state.get("earlier", []))


def _offers(state: Memory) -> tuple[Offer, ...]:
    return tuple(Offer.model_validate_json(text) for text in state.get("offers", []))
