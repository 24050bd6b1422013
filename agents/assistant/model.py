"""Understands a person with a language model that calls commands as tools, rules behind it.

The tools are made from the command classes, so a new command is a new tool. The model hears every
message first, in whatever language, with the run's facts. Only what is not for it to judge does not
wait for it: files, answers to open questions, and `stop` and `pause`. A model never loads a file,
which it would have to copy, and no call of its approves anything: both are the person's. What
spends time or leaves this machine becomes a button, unless rules read the same order in the
person's own words. Where no answer comes, or none in its format, the rules understand; where none
came the reply says so.

A model's text is made harmless before it is shown: no HTML, no pictures, no links to follow unseen.
A page shows it as Markdown, and a picture in it would be fetched from wherever it says.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, Field, JsonValue, ValidationError

from kernelwright.agents.assistant.rules import ParsedMessage, RulesAssistant, read
from kernelwright.agents.assistant.types import (
    COMMAND,
    Assistant,
    CancelTask,
    ChangeTask,
    ChatReply,
    Command,
    CommandResult,
    ContinueSearch,
    ExportResult,
    GetReport,
    LoadTask,
    MeasureAgain,
    PauseSearch,
    ReopenRun,
    SetBudget,
    StartSearch,
    Steer,
    StopSearch,
    Turn,
    Unclear,
    Understanding,
)
from kernelwright.agents.assistant.types.pieces import Code, Piece, Table, Words
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.llm.endpoint import OnPiece
from kernelwright.agents.llm.json_text import whole
from kernelwright.agents.prompting.templates import template
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Message, Prompt, Reply, ToolCall

_PICTURE = re.compile(r"!\[([^\]\n]*)\](?:\([^)\n]*\)|\[[^\]\n]*\])?")
_LINK = re.compile(r"\[([^\]\n]+)\](?:\(([^)\s]*)[^)\n]*\)|\[[^\]\n]*\])")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:.*$", re.MULTILINE)
_ADDRESS = re.compile(r"<?\b((?:https?|ftp|file|data|javascript):[^\s>)`\]]+)>?", re.IGNORECASE)
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
LONGEST = 8_000


def sanitize_markdown(text: str) -> str:
    """The same words; what stands as code stays as it is, as code is never anything else."""
    parts = _CODE.split(text[:LONGEST])
    return "".join(
        part if context % 2 else _tamed(part) for context, part in enumerate(parts)
    ).strip()


def _tamed(text: str) -> str:
    text = _DEFINITION.sub("", _PICTURE.sub(r"\1", text))
    text = _LINK.sub(r"\1", text)
    text = _ADDRESS.sub(r"`\1`", text)
    return _TAG.sub("&lt;", text)


_CLASSES: tuple[type[BaseModel], ...] = get_args(get_args(Command)[0])
_NOT_A_MODELS = (LoadTask, Unclear)
_WITHHELD = frozenset({"kind", "approved"})
_MALFORMED = re.compile(r"\s*(?:[{\[]|```json|<tool_call>)")


class Call(BaseModel):
    """One tool as a model without native tools writes it."""

    tool: str = Field(description="the name of a tool")
    arguments: dict[str, JsonValue] = Field(default_factory=dict, description="by name, if any")


class Answer(BaseModel):
    """What a model without native tools answers."""

    words: str = Field(default="", description="what is said to the person, as Markdown")
    calls: tuple[Call, ...] = Field(default=(), description="tools to call, in order")


@cache
def offered() -> dict[str, type[BaseModel]]:
    """The commands that a model may call, by the tool's name."""
    kept = (item for item in _CLASSES if not issubclass(item, _NOT_A_MODELS))
    return {item.model_fields["kind"].default: item for item in kept}


@cache
def as_functions() -> str:
    """The tools as an OpenAI-compatible server takes them, as JSON."""
    return json.dumps([_function(name, kind) for name, kind in offered().items()])


@cache
def in_words() -> str:
    """The tools for a model that reads of them: a line each, with the arguments' shapes."""
    return "\n".join(_line(name, kind) for name, kind in offered().items())


def answer_of(reply: Reply) -> Answer:
    """What a reply says and calls, natively or in its text; nothing of JSON in another shape."""
    if reply.calls:
        calls = tuple(_native(call.name, call.arguments) for call in reply.calls)
        return Answer(words=reply.text, calls=calls)
    for value in whole(reply.text):
        if isinstance(value, dict) and (found := _written(value)):
            return found
    return Answer() if _MALFORMED.match(reply.text) else Answer(words=reply.text)


def commands_of(answer: Answer) -> tuple[Command, ...]:
    """The commands that can be made of an answer's calls; what is no command is left out."""
    found = (_command(call) for call in answer.calls)
    return tuple(command for command in found if command is not None)


def as_call(command: Command) -> str:
    """A command as the call that it came from, or could have."""
    return json.dumps({"tool": command.kind, "arguments": _arguments(command)})


def _arguments(command: Command) -> dict[str, JsonValue]:
    left_out = _WITHHELD | {"source"}
    return command.model_dump(mode="json", exclude_defaults=True, exclude=set(left_out))


def _function(name: str, kind: type[BaseModel]) -> dict[str, JsonValue]:
    schema = kind.model_json_schema()
    properties = {
        field: _plain(schema["properties"][field])
        for field in kind.model_fields
        if field not in _WITHHELD
    }
    needed: list[JsonValue] = [item for item in schema.get("required", []) if item in properties]
    parameters: dict[str, JsonValue] = {"type": "object", "properties": properties}
    about = " ".join((kind.__doc__ or "").split())
    function: dict[str, JsonValue] = {"name": name, "description": about}
    function["parameters"] = {**parameters, "required": needed}
    return {"type": "function", "function": function}


def _plain(schema: dict[str, JsonValue]) -> JsonValue:
    """A field's schema without what servers' grammars stumble over."""
    return {key: value for key, value in schema.items() if key not in ("title", "default")}


def _line(name: str, kind: type[BaseModel]) -> str:
    fields = ", ".join(field for field in kind.model_fields if field not in _WITHHELD)
    about = " ".join((kind.__doc__ or "").split())
    return f"- `{name}({fields})`: {about}"


def _native(name: str, arguments: str) -> Call:
    given = next((value for value in whole(arguments) if isinstance(value, dict)), {})
    return Call(tool=name, arguments=given)


def _written(value: dict[str, JsonValue]) -> Answer | None:
    """An answer in our shape, or a bare call in one of the shapes that models have learnt."""
    if {"words", "calls"} & set(value):
        try:
            return Answer.model_validate(value)
        except ValidationError:
            return None
    name = value.get("tool") or value.get("name")
    if not isinstance(name, str) or name not in offered():
        return None
    given = value.get("arguments") or value.get("parameters")
    return Answer(calls=(Call(tool=name, arguments=given if isinstance(given, dict) else {}),))


def _command(call: Call) -> Command | None:
    """Arguments that do not fit are left out one by one, and the call with its last needed one."""
    kind = offered().get(call.tool.rsplit(".", 1)[-1])
    if kind is None:
        return None
    given = {
        name: _fitting(value)
        for name, value in call.arguments.items()
        if name in kind.model_fields and name not in _WITHHELD and value is not None
    }
    while True:
        try:
            return COMMAND.validate_python({**given, "kind": kind.model_fields["kind"].default})
        except ValidationError as error:
            wrong = {str(item["loc"][1]) for item in error.errors() if len(item["loc"]) > 1}
            if not wrong & set(given):
                return None
            given = {name: value for name, value in given.items() if name not in wrong}


def _fitting(value: JsonValue) -> JsonValue | tuple[JsonValue, ...]:
    return tuple(value) if isinstance(value, list) else value


HERE = Path(__file__).parent
# Carried out even where a model only talks about them, if rules are sure of them.
_ORDERS = (
    LoadTask
    | ChangeTask
    | StartSearch
    | CancelTask
    | PauseSearch
    | ContinueSearch
    | MeasureAgain
    | StopSearch
    | Steer
    | SetBudget
    | ExportResult
    | GetReport
    | ReopenRun
)
# What does not wait for a model.
_AT_ONCE = LoadTask | PauseSearch | StopSearch
# What a model may only propose, where the person did not say it in so many words.
_CONFIRMED = StartSearch | ContinueSearch
# Of one answer, this much goes back to the model; of an earlier one, less.
RESULT, EARLIER = 6_000, 600
SHOWN = "The person has seen this already:"
_REPLY_TOKENS = 1_500
_LAST = 6


class ModelAssistant:
    """Asks a client, and understands by rules where it has no answer.

    Args:
        client: Who is asked.
    """

    def __init__(self, client: LLMClient) -> None:
        self._client = client
        # Whether the server has called tools by its own means: then results go back as such.
        self._native = False
        self._words = template(HERE / "assistant.md", "tools", "situation")

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        """What is to be done next; with `done`, whether anything is left to do or to add."""
        reading = read(turn)
        if _needs_no_model(reading, turn):
            return Understanding(commands=()) if done else reading.understanding
        if done and _is_ordered(reading):
            return Understanding(commands=())
        try:
            reply = await self._client.say(self._prompt(turn, done))
        except LLMError as error:
            return Understanding(commands=()) if done else _without(reading, error)
        self._native = self._native or bool(reply.calls)
        answer = answer_of(reply)
        named = [command for command in commands_of(answer) if not _was_done(command, done)]
        commands = _confirmed(named, reading)
        words = sanitize_markdown(answer.words)
        if not commands and not done and (_is_ordered(reading) or not words):
            return reading.understanding
        spent = reply.tokens.input + reply.tokens.output
        return Understanding(commands=commands, words=words, tokens=spent, seconds=reply.seconds)

    def _prompt(self, turn: Turn, done: Sequence[CommandResult]) -> Prompt:
        head = self._words.messages(tools=in_words(), situation=situation(turn))
        return Prompt(
            key=f"assistant:{len(turn.earlier)}:{len(done)}",
            role="assistant",
            messages=(
                *head,
                *_earlier(turn),
                Message(author="person", text=turn.text),
                *(_called(done) if self._native else _done(done)),
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
    lines += turn.facts
    lines += [f"Idea {number}: {title[:160]}" for number, title in enumerate(turn.ideas, 1)]
    lines += [f"A button is offered: {offer.label[:80]}" for offer in turn.offers]
    return "\n".join(lines)


def result(reply: ChatReply) -> str:
    """An answer as a model reads it."""
    text = "\n\n".join(part for part in map(_piece, reply.pieces) if part)
    buttons = ", ".join(offer.label for offer in reply.offers)
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
    for outcome in done:
        found.append(Message(author="model", text=as_call(outcome.command)))
        kind, shown = outcome.command.kind, result(outcome.reply)
        text = f"Result of `{kind}`. {SHOWN}\n\n{shown}"
        found.append(Message(author="person", text=text))
    return found


def _called(done: Sequence[CommandResult]) -> list[Message]:
    """What was done, as calls of tools with their results."""
    found = []
    for number, outcome in enumerate(done, start=1):
        kind, id = outcome.command.kind, f"call_{number}"
        call = ToolCall(name=kind, arguments=json.dumps(_arguments(outcome.command)), id=id)
        found.append(Message(author="model", text="", calls=(call,)))
        shown = f"{SHOWN}\n\n{result(outcome.reply)}"
        found.append(Message(author="tool", text=shown, call=id))
    return found


def _needs_no_model(reading: ParsedMessage, turn: Turn) -> bool:
    """A file, a button that was taken in words, and what ends or holds the search."""
    commands = reading.understanding.commands
    if turn.attachments or reading.taken:
        return True
    return reading.sure and bool(commands) and isinstance(commands[0], _AT_ONCE)


def _is_ordered(reading: ParsedMessage) -> bool:
    commands = reading.understanding.commands
    orders = bool(commands) and all(isinstance(command, _ORDERS) for command in commands)
    return reading.sure and orders


def _was_done(command: Command, done: Sequence[CommandResult]) -> bool:
    """A model that asks for the same once more has nothing else to ask."""
    return any(outcome.command == command for outcome in done)


def _confirmed(commands: Sequence[Command], reading: ParsedMessage) -> tuple[Command, ...]:
    """What only the person may begin becomes a button behind everything else."""
    said = reading.understanding.commands if reading.sure else ()
    proposed = tuple(
        command for command in commands if isinstance(command, _CONFIRMED) and command not in said
    )
    others = tuple(command for command in commands if command not in proposed)
    return (*others, Unclear(guesses=proposed)) if proposed else others


def _without(reading: ParsedMessage, error: LLMError) -> Understanding:
    known = reading.understanding
    why = sanitize_markdown(str(error))
    note = f"*No answer from the language model ({why}); understood by rules.*"
    return known.model_copy(
        update={"words": "\n\n".join(part for part in (note, known.words) if part)}
    )


# Somebody sits there and waits; after this, rules answer.
PATIENCE_S = 45.0
RETRIES = 1


def assistant_for(profile: ModelProfile | None, on_piece: OnPiece | None = None) -> Assistant:
    """The assistant behind a model's profile.

    Args:
        profile: The model; None, or a person who answers by files, leaves it to the rules.
        on_piece: Called with the pieces of a streamed answer.
    """
    if profile is None or profile.kind == "manual":
        return RulesAssistant()
    from kernelwright.agents.llm.wrappers import endpoint_client

    patient = {
        "timeout_s": min(profile.timeout_s, PATIENCE_S),
        "retries": min(profile.retries, RETRIES),
    }
    return ModelAssistant(endpoint_client(profile.model_copy(update=patient), on_piece=on_piece))
