"""Commands as tools of a language model: what it may call, and what its calls mean.

Made from the wishes' own classes, so a new wish is a new tool. A file is never loaded by a model,
which would have to copy it, and no call approves anything: both are the person's.
"""

import json
from functools import cache
from typing import get_args

from pydantic import BaseModel, Field, JsonValue, ValidationError

from kernelwright.agents.assistant.types.commands import COMMAND, Command, LoadTask, Unclear
from kernelwright.agents.llm.json_text import whole
from kernelwright.tools.types import Reply

_CLASSES: tuple[type[BaseModel], ...] = get_args(get_args(Command)[0])
_NOT_A_MODELS = (LoadTask, Unclear)
_WITHHELD = frozenset({"kind", "approved"})


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
    """The wishes that a model may call, by the tool's name."""
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
    """What a reply says and calls, natively or in its text; words where it is no JSON."""
    if reply.calls:
        calls = tuple(_native(call.name, call.arguments) for call in reply.calls)
        return Answer(words=reply.text, calls=calls)
    for value in whole(reply.text):
        if isinstance(value, dict) and (found := _written(value)):
            return found
    return Answer(words=reply.text)


def wishes_of(answer: Answer) -> tuple[Command, ...]:
    """The wishes that can be made of an answer's calls; what is no wish is left out."""
    found = (_wish(call) for call in answer.calls)
    return tuple(wish for wish in found if wish is not None)


def as_call(wish: Command) -> str:
    """A wish as the call that it came from, or could have."""
    left_out = _WITHHELD | {"source"}
    given = wish.model_dump(mode="json", exclude_defaults=True, exclude=set(left_out))
    return json.dumps({"tool": wish.kind, "arguments": given})


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


def _wish(call: Call) -> Command | None:
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
