"""Asks for an answer of a certain shape, and gets it from whatever a model writes.

The shape is described in the prompt as a commented skeleton, since few servers enforce one and none
says that it did not. It is written from a pydantic model's own JSON schema; what validators in code
demand belongs into the fields' descriptions. An answer that cannot be read goes back to the model
once, with what was wrong. Not here: code, which travels in fenced blocks (`agents.llm.json_text`).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.llm.json_text import broken_off, whole
from kernelwright.agents.prompting.templates import section
from kernelwright.tools.types import Message, Prompt, Reply

T = TypeVar("T", bound=BaseModel)

HERE = Path(__file__).parent
# Of an answer that could not be read, this much goes back to the model.
_SHOWN = 12_000
_PROBLEMS = 3
CUT_OFF = frozenset({"length", "cut off"})


@dataclass(frozen=True)
class Answered(Generic[T]):
    """What was understood, the reply it stood in, and what had to be overlooked for it."""

    value: T
    reply: Reply
    notes: tuple[str, ...] = ()


async def answer(client: LLMClient, prompt: Prompt, schema: type[T]) -> Answered[T]:
    """Ask for a JSON object that `schema` reads.

    The shape is added to the last message, so a prompt need not describe it; what a field means
    belongs into its description. Fields that the schema does not know are left out.

    Raises:
        LLMError: There was no answer, or neither it nor the one after it could be read.
        AwaitingError: The answer comes from outside and is not there yet.
    """
    asked = _with_shape(prompt, schema)
    reply = await client.say(asked)
    found = _read(reply, schema)
    if isinstance(found, Answered):
        return found
    second = await client.say(ask_again(asked, reply, found))
    read = _read(second, schema)
    if isinstance(read, Answered):
        note = f"the first answer could not be read ({found})"
        return Answered(read.value, read.reply, (note, *read.notes))
    who = second.model or "the model"
    raise LLMError(f"{who} did not answer {prompt.key} in the form that was asked for: {read}")


def ask_again(prompt: Prompt, reply: Reply, problem: str) -> Prompt:
    """The question once more, with the model's own answer and what is wrong with it."""
    shown = reply.text.strip()
    if len(shown) > _SHOWN:
        shown = f"{shown[: _SHOWN // 2]}\n[...]\n{shown[-_SHOWN // 2 :]}"
    own = (Message(author="model", text=shown),) if shown else ()
    words = section(HERE / "again.md", problem=problem, cut_off=reply.finish in CUT_OFF)
    again = Message(author="person", text=words)
    update = {"key": f"{prompt.key}:again", "messages": (*prompt.messages, *own, again)}
    return prompt.model_copy(update=update)


def _with_shape(prompt: Prompt, schema: type[BaseModel]) -> Prompt:
    words = section(HERE / "answer.md", shape=shape(schema))
    *before, last = prompt.messages
    if last.author == "person":
        messages = (*before, Message(author="person", text=f"{last.text}\n\n{words}"))
    else:
        messages = (*prompt.messages, Message(author="person", text=words))
    described = _json(schema)
    return prompt.model_copy(update={"messages": messages, "answer_schema": described})


@cache
def _json(schema: type[BaseModel]) -> str:
    import json

    return json.dumps(schema.model_json_schema())


def _read(reply: Reply, schema: type[T]) -> Answered[T] | str:
    """The answer in a reply, or what is wrong with it, in words for the model."""
    if not reply.text.strip():
        return "it was empty"
    problem = ""
    for value, note in _offers(reply.text):
        read = _fitted(value, schema)
        if isinstance(read, str):
            problem = problem or read
            continue
        fitted, left_out = read
        notes: tuple[str, ...] = (note,) if note else ()
        if left_out:
            notes += (f"left out of the answer: {', '.join(left_out)}",)
        return Answered(fitted, reply, notes)
    return problem or "there was no JSON object in it"


def _offers(text: str) -> Iterator[tuple[JsonValue, str]]:
    """Values that may be the answer, with what had to be overlooked for each."""
    for value in whole(text):
        yield value, ""
    for value in broken_off(text):
        yield value, "the answer broke off; what there was of it is used"


def _fitted(value: JsonValue, schema: type[T]) -> tuple[T, tuple[str, ...]] | str:
    """The value as the schema reads it and the fields it does not know, or why it does not fit."""
    value = _as_object(value, schema)
    if not isinstance(value, dict):
        return ""
    if not set(value) & set(schema.model_fields):
        return f"it has none of the fields {', '.join(schema.model_fields)}"
    try:
        return schema.model_validate(value), ()
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors() if item["type"] == "extra_forbidden"]
        if not unknown:
            return problems_of(error)
    try:
        known = _without(value, unknown)
        left_out = (".".join(map(str, place)) for place in unknown)
        return schema.model_validate(known), tuple(left_out)
    except ValidationError as error:
        return problems_of(error)


def _as_object(value: JsonValue, schema: type[BaseModel]) -> JsonValue:
    """A bare list is the value of the schema's only field."""
    if isinstance(value, list) and value and len(schema.model_fields) == 1:
        return {next(iter(schema.model_fields)): value}
    return value


def _without(value: JsonValue, places: list[tuple[int | str, ...]]) -> JsonValue:
    """A copy without what stands at those places."""
    if isinstance(value, dict):
        return {
            name: _without(item, [place[1:] for place in places if place[:1] == (name,)])
            for name, item in value.items()
            if (name,) not in places
        }
    if isinstance(value, list):
        return [
            _without(item, [place[1:] for place in places if place[:1] == (number,)])
            for number, item in enumerate(value)
        ]
    return value


def problems_of(error: ValidationError) -> str:
    """The first few, each with its place and what stood there."""
    found = []
    for item in error.errors()[:_PROBLEMS]:
        place = ".".join(map(str, item["loc"]))
        given = "" if item["type"] == "missing" else f", but it was {str(item['input'])[:80]!r}"
        found.append(f"{place}: {item['msg']}{given}" if place else f"{item['msg']}{given}")
    return "; ".join(found)


_NAMES = {"string": "string", "number": "number", "integer": "integer", "boolean": "true or false"}
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "maxLength": "at most {} characters",
}

Schema = dict[str, JsonValue]


@cache
def shape(model: type[BaseModel]) -> str:
    """A skeleton of the JSON object that `model` reads."""
    schema: Schema = model.model_json_schema()
    named = schema.get("$defs")
    return _Sketch(named if isinstance(named, dict) else {}).of(schema, "")


class _Sketch:
    """Draws schemas; `named` are those that are referred to by name."""

    def __init__(self, named: Schema) -> None:
        self._named = named

    def of(self, schema: Schema, indent: str) -> str:
        """One schema; every line after the first is indented."""
        schema = self._resolved(schema)
        if choices := schema.get("enum"):
            return _either(choices)
        if "const" in schema:
            return json.dumps(schema["const"])
        if isinstance(schema.get("properties"), dict):
            return self._object(schema, indent)
        if schema.get("type") == "array":
            return self._list(schema, indent)
        if isinstance(several := schema.get("anyOf"), list):
            return " or ".join(self.of(item, indent) for item in several if isinstance(item, dict))
        return (
            "null" if schema.get("type") == "null" else _NAMES.get(str(schema.get("type")), "...")
        )

    def _object(self, schema: Schema, indent: str) -> str:
        properties, required = schema["properties"], schema.get("required")
        needed = required if isinstance(required, list) else []
        lines = ["{"]
        for name, field in properties.items() if isinstance(properties, dict) else ():
            if not isinstance(field, dict):
                continue
            value = self.of(field, indent + "  ")
            remark = "; ".join(_remarks(field, optional=name not in needed))
            comment = f"  // {remark}" if remark else ""
            lines.append(f'{indent}  "{name}": {_commented(value, comment)}')
        return "\n".join([*lines, f"{indent}}}"])

    def _list(self, schema: Schema, indent: str) -> str:
        item = schema.get("items")
        inner = self.of(item, indent + "  ") if isinstance(item, dict) else "..."
        if "\n" not in inner:
            return f"[{inner}, ...]"
        return f"[\n{indent}  {inner},\n{indent}  ...\n{indent}]"

    def _resolved(self, schema: Schema) -> Schema:
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        found = self._named.get(reference.rsplit("/", 1)[-1])
        return found if isinstance(found, dict) else schema


def _either(choices: JsonValue) -> str:
    listed = choices if isinstance(choices, list) else [choices]
    return " or ".join(json.dumps(choice) for choice in listed)


def _commented(value: str, comment: str) -> str:
    """The comment stands behind the first line, where the value begins."""
    first, *rest = value.split("\n")
    comma = "" if rest else ","
    end = [*rest[:-1], f"{rest[-1]},"] if rest else []
    return "\n".join([f"{first}{comma}{comment}", *end])


def _remarks(field: Schema, *, optional: bool) -> list[str]:
    words = str(field.get("description", "")).split()
    found = [" ".join(words)] if words else []
    found += [text.format(field[name]) for name, text in _LIMITS.items() if name in field]
    return [*found, "may be left out"] if optional else found
