"""What a tool is that a model may call, and how a call is read, however it is written.

A tool has a name, a line about it, typed arguments, and a function that answers in text. Whatever
is wrong with a call comes back to the model in one sentence: a name that is no tool's, arguments
that are no JSON or do not fit, what the tool itself cannot do. Not here: the loop that asks, runs
and asks again (`agents.llm.tool_loop`).
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from kernelwright.agents.llm.answers import problems_of
from kernelwright.agents.llm.json_text import whole
from kernelwright.tools.types import Reply, ToolCall, Value

Arguments = TypeVar("Arguments", bound=BaseModel)

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
# What servers take as a function's name.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNNAMED = "unknown_tool"
# Of a call that cannot be read, this much is quoted back.
_QUOTED = 200
# Keys under which models write a call into their text.
_NAMES, _GIVEN = ("tool", "name"), ("arguments", "parameters", "args")


class ToolError(Exception):
    """A tool cannot do what it was asked; the message is one sentence for the model."""


@dataclass(frozen=True)
class Tool:
    """One function that a model may call.

    Attributes:
        name: As the model calls it.
        about: When to call it, and what comes back, in a sentence or two.
        schema: The JSON schema of its arguments.
        shape: Its arguments in words, for a model that reads of them.
        run: Does it; takes the arguments' JSON and raises ToolError.
        heed: Takes note of a call, also of one whose result is known from before.
        beforehand: Arguments with which a model that calls no tools is told what it would find.
    """

    name: str
    about: str
    schema: str
    shape: str
    run: Callable[[str], Awaitable[str]]
    heed: Callable[[str], None]
    beforehand: tuple[str, ...] = ()


def tool(
    name: str,
    about: str,
    takes: type[Arguments],
    run: Callable[[Arguments], Awaitable[str]],
    *,
    heed: Callable[[Arguments], None] | None = None,
    beforehand: Sequence[Arguments] = (),
) -> Tool:
    """A tool whose arguments are read into `takes`, whose fields say what they mean."""

    async def call(given: str) -> str:
        return await run(_read(name, takes, given))

    def note(given: str) -> None:
        if heed is not None:
            try:
                heed(_read(name, takes, given))
            except ToolError:
                return  # the call itself will say so

    schema = takes.model_json_schema()
    return Tool(
        name=name,
        about=about,
        schema=json.dumps(_plain(schema)),
        shape=", ".join(_argument(*item) for item in takes.model_fields.items()),
        run=call,
        heed=note,
        beforehand=tuple(item.model_dump_json(exclude_defaults=True) for item in beforehand),
    )


def as_functions(tools: Sequence[Tool]) -> str:
    """The tools as an OpenAI-compatible server takes them, as JSON."""
    functions = [
        {"name": item.name, "description": item.about, "parameters": json.loads(item.schema)}
        for item in tools
    ]
    return json.dumps([{"type": "function", "function": item} for item in functions])


class ReadCalls(Value):
    """The calls of a reply; `native` when the server knows them as such."""

    calls: tuple[ToolCall, ...] = ()
    native: bool = True


def calls_of(reply: Reply, tools: Sequence[Tool]) -> ReadCalls:
    """What a reply calls, natively or in its text."""
    if reply.calls:
        return ReadCalls(calls=reply.calls)
    names = {item.name for item in tools}
    tagged = [_tagged(text) for text in _TAGGED.findall(reply.text)]
    if tagged:
        return ReadCalls(calls=tuple(tagged), native=False)
    for value in whole(reply.text):
        call = _written(value)
        if call is not None and call.name in names:
            return ReadCalls(calls=(call,), native=False)
    return ReadCalls()


def sendable(call: ToolCall, id: str) -> ToolCall:
    """The call as a server takes it back: a proper name, an object of arguments, our own id."""
    name = call.name if _NAME.fullmatch(call.name) else UNNAMED
    found = _object(call.arguments)
    return ToolCall(name=name, arguments=json.dumps(found or {}), id=id)


def _read(name: str, takes: type[Arguments], given: str) -> Arguments:
    value = _object(given)
    if value is None:
        shown = given.strip()[:_QUOTED]
        raise ToolError(f"{name}: its arguments are no JSON object: {shown!r}")
    known = {key: item for key, item in value.items() if key in takes.model_fields}
    try:
        return takes.model_validate(known)
    except ValidationError as error:
        raise ToolError(f"{name}: {problems_of(error)}") from None


def _object(given: str) -> dict[str, JsonValue] | None:
    """The arguments; none at all are an empty object."""
    if not given.strip():
        return {}
    try:
        value = json.loads(given, strict=False)
    except (ValueError, RecursionError):
        value = next((item for item in whole(given) if isinstance(item, dict)), None)
    return value if isinstance(value, dict) else None


def _tagged(text: str) -> ToolCall:
    for value in whole(text):
        if (call := _written(value)) is not None:
            return call
    return ToolCall(name="", arguments=text)


def _written(value: JsonValue) -> ToolCall | None:
    """A call as models write it: its name, and its arguments beside it."""
    if not isinstance(value, dict):
        return None
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    given = next((value[key] for key in _GIVEN if key in value), {})
    if not isinstance(name, str) or not set(value) <= {*_NAMES, *_GIVEN, "type", "id"}:
        return None
    return ToolCall(name=name, arguments=given if isinstance(given, str) else json.dumps(given))


def _argument(name: str, field: object) -> str:
    words = " ".join(str(getattr(field, "description", "") or "").split())
    return f"{name} ({words})" if words else name


def _plain(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A schema without what servers' grammars stumble over."""
    properties = schema.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    kept: dict[str, JsonValue] = {
        name: {key: item for key, item in field.items() if key not in ("title", "default")}
        for name, field in fields.items()
        if isinstance(field, dict)
    }
    return {"type": "object", "properties": kept, "required": schema.get("required", [])}
