"""Reads foreign code out of the files that people keep it in; nothing is executed.

A Python file with a `ModelNew` (KernelBench), a folder or file of a `ref.py`/`src.py` pair, or a
file of records one a line, as CUDA-L1 publishes them.
"""

import ast
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tools.evaluate.foreign.request import Foreign
from tools.nouns import Refusal
from tools.tasks.source import read_source

RECORDS = (".json", ".jsonl")
_LARGEST_BYTES = 256 * 1024 * 1024
_PREFERRED = ("ModelNew", "Model")


class Record(BaseModel):
    """One line of a file of records, as far as it matters here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    level_id: int | None = None
    task_id: int | None = None
    ref_code: str = ""
    custom_code: str | None = None

    @property
    def name(self) -> str:
        """Level and task, as in `1/23`."""
        return f"{self.level_id}/{self.task_id}"


def is_foreign(path: Path) -> bool:
    """Whether a path holds foreign code, rather than a kernel with its plan."""
    if path.is_dir():
        return (path / "src.py").is_file()
    if path.suffix in RECORDS:
        return True
    if path.suffix != ".py" or not path.is_file():
        return False
    source = read_source(path)
    return isinstance(source, str) and bool(_classes(source))


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
    return _of_source(source, file.name, entry)


def _of_source(source: str, name: str, entry: str | None) -> Foreign | Refusal:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return Refusal(sentence=f"{name} is no Python: {error}.")
    there = _classes(source)
    if entry is not None and entry not in there:
        listed = ", ".join(there) or "none"
        return Refusal(sentence=f"{name} has no class {entry}; it has {listed}.")
    chosen = entry or next((n for n in _PREFERRED if n in there), there[-1] if there else None)
    if chosen is None:
        return Refusal(sentence=f"{name} defines no ModelNew.")
    return Foreign(name=name, source=source, entry=chosen)


def _of_record(path: Path, task: str, wanted: str | None, entry: str | None) -> Foreign | Refusal:
    records = _records(path)
    if isinstance(records, Refusal):
        return records
    found = _chosen(records, task, wanted)
    if found is None:
        which = f"record {wanted}" if wanted else "record of this task"
        return Refusal(
            sentence=f"{path.name} has no {which} among its {len(records)}; name one with "
            "--record: the number of its line, or level/task."
        )
    if not found.custom_code:
        return Refusal(sentence=f"Record {found.name} of {path.name} holds no code of its own.")
    return _of_source(found.custom_code, f"{path.stem} {found.name}", entry)


def _records(path: Path) -> list[Record] | Refusal:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return Refusal(sentence=f"{path} is too large for a file of records.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return Refusal(sentence=f"{path} cannot be read: {error}.")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(Record.model_validate_json(line))
        except ValidationError:
            return Refusal(sentence=f"Line {number} of {path} is no record in JSON.")
    return records


def _chosen(records: Sequence[Record], task: str, wanted: str | None) -> Record | None:
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


def _same(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError):
        return False


def _classes(source: str) -> list[str]:
    """Classes that have a forward or a parent, in the file's order."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
