"""The shape of a JSON answer in words: a commented skeleton that small models can follow too.

Written from a pydantic model's own JSON schema, field descriptions included. Not covered:
validators in code; what they demand belongs into the fields' descriptions.
"""

import json
from functools import cache

from pydantic import BaseModel, JsonValue

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
