"""Reads foreign code out of the files that people keep it in; nothing is executed.

A Python file with a `ModelNew` (KernelBench), also one in a fence of Markdown, as models answer; a
folder with a `src.py`, as in a `ref.py`/`src.py` pair; or a file of records (`records`).
"""

import ast
import re
from pathlib import Path

from kernelwright.tools.evaluate.foreign.reach import bound
from kernelwright.tools.evaluate.foreign.records import chosen, read_records
from kernelwright.tools.evaluate.messages.foreign import Foreign
from kernelwright.tools.tasks.source import read_source
from kernelwright.tools.types import Refusal

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
