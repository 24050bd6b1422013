"""Reads files of records, each a piece of foreign code with its level and task.

CUDA-L1 publishes them one a line, or as one object whose keys are levels; a list of records or a
single one spread over lines is taken as well. Nothing is executed.
"""

import ast
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from kernelwright.tools.types import Refusal

_LARGEST_BYTES = 256 * 1024 * 1024


class Record(BaseModel):
    """One record, as far as it matters here; without a number where there is none."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level_id: int | None = None
    task_id: int | None = None
    ref_code: str = ""
    custom_code: str | None = Field(
        default=None, validation_alias=AliasChoices("custom_code", "code")
    )

    @property
    def name(self) -> str:
        """Level and task, as in `1/23`, as far as they are known."""
        known = [str(part) for part in (self.level_id, self.task_id) if part is not None]
        return "/".join(known)

    @property
    def empty(self) -> bool:
        """Whether there is no code; some publishers write the word None."""
        return (self.custom_code or "None").strip() in ("", "None")


def read_records(path: Path) -> tuple[Record, ...] | Refusal:
    """Every record of a file, in its order."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return Refusal(sentence=f"{path} is too large for a file of records.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Refusal(sentence=f"{path} cannot be read: {error}.")
    if (whole := _whole(text)) is not None:
        return whole or Refusal(sentence=f"{path} holds no records.")
    records = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            records.append(Record.model_validate_json(line))
        except ValidationError:
            return Refusal(sentence=f"Line {number} of {path} is no record in JSON.")
    return tuple(records) or Refusal(sentence=f"{path} holds no records.")


def chosen(records: Sequence[Record], task: str, wanted: str | None) -> Record | None:
    """By number or name; without one, the only record or the one whose reference is the task."""
    if wanted is not None:
        if wanted.isdigit():
            number = int(wanted)
            return records[number - 1] if 0 < number <= len(records) else None
        return next((record for record in records if record.name == wanted), None)
    same = [record for record in records if _same(record.ref_code, task)]
    if len(same) == 1:
        return same[0]
    return records[0] if len(records) == 1 else None


def _whole(text: str) -> tuple[Record, ...] | None:
    """The records of a file that is one value of JSON; None when it is not, or none of these."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    listed: list[object] = []
    if isinstance(value, list):
        listed = list(value)
    elif isinstance(value, dict) and value and all(isinstance(v, list) for v in value.values()):
        for level, items in value.items():
            number = {"level_id": int(level)} if str(level).isdigit() else {}
            listed += [number | item if isinstance(item, dict) else item for item in items]
    else:
        listed = [value]
    try:
        return tuple(Record.model_validate(item) for item in listed)
    except ValidationError:
        return None


def _same(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError):
        return False
