"""Understands a person with a language model that calls commands as tools, rules behind it.

What rules are sure of, and what must happen within a second, is not asked: files, answers to open
questions, and orders. What spends time or leaves the house becomes a button, whatever the model
wanted. Where no answer comes the rules understand, and that is said.
"""

from collections.abc import Sequence
from pathlib import Path

from kernelwright.agents.assistant.model_tools import (
    answer_of,
    as_call,
    as_functions,
    in_words,
    wishes_of,
)
from kernelwright.agents.assistant.rules import ParsedMessage, read
from kernelwright.agents.assistant.sanitize_markdown import sanitize_markdown
from kernelwright.agents.assistant.types.chat import (
    ChatReply,
    Code,
    CommandResult,
    Piece,
    Table,
    Turn,
    Understanding,
    Words,
)
from kernelwright.agents.assistant.types.commands import (
    CancelTask,
    ChangeTask,
    Command,
    ContinueSearch,
    ExportResult,
    GetReport,
    LoadTask,
    PauseSearch,
    ReopenRun,
    StartSearch,
    Steer,
    StopSearch,
    Unclear,
)
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.tools.types import Message, Prompt

HERE = Path(__file__).parent
# Understood by rules where they are sure: there is nothing to think about.
_ORDERS = (
    LoadTask
    | ChangeTask
    | StartSearch
    | CancelTask
    | PauseSearch
    | ContinueSearch
    | StopSearch
    | Steer
    | ExportResult
    | GetReport
    | ReopenRun
)
# What a model may only propose.
_CONFIRMED = StartSearch | ContinueSearch
# Of one answer, this much goes back to the model; of an earlier one, less.
RESULT, EARLIER = 6_000, 600
_REPLY_TOKENS = 1_500
_LAST = 6


class ModelAssistant:
    """Asks a client, and understands by rules where it has no answer.

    Args:
        client: Who is asked.
    """

    def __init__(self, client: LLMClient) -> None:
        self._client = client
        self._words = PromptTemplate(HERE / "assistant.md", "tools", "situation")

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        """What is to be done next; with `done`, whether anything is left to do or to add."""
        reading = read(turn)
        if _needs_no_model(reading):
            return Understanding(wishes=()) if done else reading.understanding
        try:
            reply = await self._client.say(self._prompt(turn, done))
        except LLMError as error:
            return Understanding(wishes=()) if done else _without(reading, error)
        answer = answer_of(reply)
        wishes = _confirmed([wish for wish in wishes_of(answer) if not _was_done(wish, done)])
        words = sanitize_markdown(answer.words)
        if not wishes and not words:
            return Understanding(wishes=()) if done else reading.understanding
        return Understanding(wishes=wishes, words=words)

    def _prompt(self, turn: Turn, done: Sequence[CommandResult]) -> Prompt:
        head = self._words.messages(tools=in_words(), situation=situation(turn))
        return Prompt(
            key=f"assistant:{len(turn.earlier)}:{len(done)}",
            role="assistant",
            messages=(
                *head,
                *_earlier(turn),
                Message(author="person", text=turn.text),
                *_done(done),
            ),
            reply_tokens=_REPLY_TOKENS,
            tools=as_functions(),
        )


def situation(turn: Turn) -> str:
    """What there is to speak about, in a few lines."""
    lines = [f"Task on the table: {turn.task}." if turn.task else "There is no task yet."]
    if turn.run:
        lines.append(
            f"Run {turn.run}: {'the search is running' if turn.running else 'not running'}."
        )
    if turn.candidates:
        count = len(turn.candidates)
        lines.append(f"{count} candidates were written, `v1` to `v{count}`; `best` is the fastest.")
    lines += [f"Idea {number}: {title[:160]}" for number, title in enumerate(turn.ideas, 1)]
    lines += [f"A button is offered: {offer.label[:80]}" for offer in turn.offers]
    return "\n".join(lines)


def result(saying: ChatReply) -> str:
    """An answer as a model reads it."""
    text = "\n\n".join(part for part in map(_piece, saying.pieces) if part)
    buttons = ", ".join(offer.label for offer in saying.offers)
    text = text if len(text) <= RESULT else f"{text[:RESULT]}\n[... cut]"
    return f"{text}\n\nButtons: {buttons}" if buttons else text


def _piece(piece: Piece) -> str:
    if isinstance(piece, Words):
        return piece.text
    if isinstance(piece, Code):
        return f"{piece.title}\n~~~~{piece.language}\n{piece.text}\n~~~~"
    if isinstance(piece, Table):
        rows = [" | ".join(row) for row in (piece.columns, *piece.rows)]
        return "\n".join([piece.title, *rows])
    return f"({piece.kind} shown)"


def _earlier(turn: Turn) -> list[Message]:
    found = []
    for said, answer in turn.earlier[-_LAST:]:
        found.append(Message(author="person", text=said[:EARLIER] or "(a file)"))
        found.append(Message(author="model", text=answer[:EARLIER] or "(shown)"))
    return found


def _done(done: Sequence[CommandResult]) -> list[Message]:
    found = []
    for deed in done:
        found.append(Message(author="model", text=as_call(deed.wish)))
        text = (
            f"Result of `{deed.wish.kind}`, already shown to the person:\n\n{result(deed.saying)}"
        )
        found.append(Message(author="person", text=text))
    return found


def _needs_no_model(reading: ParsedMessage) -> bool:
    wishes, words = reading.understanding.wishes, reading.understanding.words
    orders = bool(wishes) and all(isinstance(wish, _ORDERS) for wish in wishes)
    return reading.sure and (orders or bool(words))


def _was_done(wish: Command, done: Sequence[CommandResult]) -> bool:
    """A model that asks for the same once more has nothing else to ask."""
    return any(deed.wish == wish for deed in done)


def _confirmed(wishes: Sequence[Command]) -> tuple[Command, ...]:
    """What only the person may begin becomes a button behind everything else."""
    proposed = tuple(wish for wish in wishes if isinstance(wish, _CONFIRMED))
    others = tuple(wish for wish in wishes if not isinstance(wish, _CONFIRMED))
    return (*others, Unclear(guesses=proposed)) if proposed else others


def _without(reading: ParsedMessage, error: LLMError) -> Understanding:
    known = reading.understanding
    why = sanitize_markdown(str(error))
    note = f"*No answer from the language model ({why}); understood by rules.*"
    return known.model_copy(
        update={"words": "\n\n".join(part for part in (note, known.words) if part)}
    )
