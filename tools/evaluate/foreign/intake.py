"""Reads foreign code out of the files that people keep it in; nothing is executed.

A Python file with a `ModelNew` (KernelBench), also one in a fence of Markdown, as models answer; a
folder with a `src.py`, as in a `ref.py`/`src.py` pair; or a file of records, each a piece of
foreign code with its level and task. CUDA-L1 publishes records one a line, or as one object whose
keys are levels; a list of records or a single one spread over lines is taken as well.
"""

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from kernelwright.tools.evaluate.foreign.syntax import bound
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.tasks.project import needed
from kernelwright.tools.tasks.refusals import read_source
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


RECORDS = (".json", ".jsonl")
_PREFERRED = ("ModelNew", "Model")
_OURS = re.compile(r"^```(cuda|cpp|c\+\+)", re.MULTILINE)
_FENCED = re.compile(r"^```(?:python|py)?[^\S\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def is_foreign(path: Path) -> bool:
    """Whether a path holds foreign code, rather than a kernel with its plan."""
    if path.is_dir():
        return (path / "src.py").is_file()
    if path.suffix in RECORDS:
        return True
    if path.suffix != ".py" or not path.is_file():
        return False
    source = read_source(path)
    return isinstance(source, str) and not _OURS.search(source)


def read_foreign(
    path: Path, task: str, record: str | None = None, entry: str | None = None
) -> Foreign | Refusal:
    """The foreign code at a path.

    Args:
        path: a file or a folder that `is_foreign`.
        task: the text of the task's file, which says which record is meant.
        record: the number of a line, or `level/task`.
        entry: the class to construct; found if not given.
    """
    if path.suffix in RECORDS:
        return _of_record(path, task, record, entry)
    if record is not None:
        return Refusal(sentence=f"{path} holds no records, so there is none to choose.")
    file = path / "src.py" if path.is_dir() else path
    source = read_source(file)
    if isinstance(source, Refusal):
        return source
    if others := needed(source, str(file)):
        return Refusal(
            sentence=f"{file.name} imports {', '.join(others)} from other files; what is judged is "
            "read as one file, so put what it needs into it."
        )
    return _of_source(source, file.name, entry)


def _of_source(source: str, name: str, entry: str | None) -> Foreign | Refusal:
    source = _unfenced(source)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return Refusal(sentence=f"{name} is no Python: {error.msg} (line {error.lineno}).")
    except (ValueError, RecursionError, MemoryError) as error:
        return Refusal(sentence=f"{name} is no Python: {error}.")
    there = _classes(tree)
    if entry is not None and entry not in there:
        listed = ", ".join(there) or "none"
        return Refusal(sentence=f"{name} has no class {entry}; it has {listed}.")
    found = entry or next((n for n in _PREFERRED if n in there), there[-1] if there else None)
    if found is None:
        return Refusal(
            sentence=f"{name} defines no ModelNew, nor another class with a parent like nn.Module."
        )
    return Foreign(name=name, source=source, entry=found)


def _of_record(path: Path, task: str, wanted: str | None, entry: str | None) -> Foreign | Refusal:
    records = read_records(path)
    if isinstance(records, Refusal):
        return records
    found = chosen(records, task, wanted)
    if found is None:
        which = f"record {wanted}" if wanted else "record of this task"
        return Refusal(
            sentence=f"{path.name} has no {which} among its {len(records)}; name one with "
            "--record: the number of its line, or level/task."
        )
    name = " ".join(part for part in (path.stem, found.name) if part)
    if found.empty or found.custom_code is None:
        return Refusal(sentence=f"The record {name} holds no code of its own.")
    return _of_source(found.custom_code, name, entry)


def _unfenced(source: str) -> str:
    """The text within its only fence, where there is one and a ModelNew within."""
    blocks: list[str] = [text for text in _FENCED.findall(source) if "class ModelNew" in text]
    return blocks[0] if len(blocks) == 1 else source


def _classes(tree: ast.Module) -> list[str]:
    """Names that stand for a class with a parent, in the file's order; other names for one last."""
    found = [(name, node) for statement in tree.body for name, node in bound(statement)]
    classes = [name for name, node in found if isinstance(node, ast.ClassDef) and node.bases]
    aliases = [
        name
        for name, node in found
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and node.value.id in classes
    ]
    named = [name for name in aliases if name in _PREFERRED]
    return list(dict.fromkeys([*classes, *named]))
