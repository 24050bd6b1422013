"""Which file of a folder is meant: by the entry's name, by `get_inputs`, or a question which.

Files are parsed, never run. Where several could be it, nobody guesses: the refusal names them.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kernelwright.tools.tasks.sources.notebook import HELPERS, module_classes
from kernelwright.tools.types import Refusal

MOST_FILES = 2000
MOST_NAMED = 8
_LARGEST = 1 << 20
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class Holds:
    """A file and what it defines at its top level."""

    file: Path
    modules: tuple[str, ...]
    names: frozenset[str]

    @property
    def is_task(self) -> bool:
        """Whether it says its inputs too."""
        return "get_inputs" in self.names and bool(self.modules or self.names - {*HELPERS})


def chosen(folder: Path, entry: str | None, called: str) -> tuple[Path, str | None] | Refusal:
    """The file that is meant and the entry in it.

    Args:
        folder: The person's folder, or an archive's.
        entry: A name, or None.
        called: What the person calls the folder.
    """
    files = [found for file in _files(folder) if (found := _read(file))]
    if entry is not None:
        files = [item for item in files if entry in item.names]
        if not files:
            return Refusal(sentence=f"{called} has no file that defines {entry}.")
    else:
        files = [item for item in files if item.modules or item.is_task]
        if not files:
            return Refusal(sentence=f"{called} has no Python file with an nn.Module.")
    tasks = [item for item in files if item.is_task]
    files = tasks or files
    meant = [(item, name) for item in files for name in _entries(item, entry)]
    if len(meant) == 1:
        return meant[0][0].file, meant[0][1]
    return _which(folder, called, [(item.file, name) for item, name in meant])


def _entries(item: Holds, entry: str | None) -> tuple[str, ...]:
    if entry is not None:
        return (entry,)
    if "Model" in item.modules:
        return ("Model",)
    return item.modules or tuple(sorted(item.names - {*HELPERS}))[:1]


def _which(folder: Path, called: str, meant: list[tuple[Path, str]]) -> Refusal:
    choices = tuple(f"{file.relative_to(folder).as_posix()}:{name}" for file, name in meant)
    shown = ", ".join(choices[:MOST_NAMED])
    more = len(choices) - MOST_NAMED
    also = f" and {more} more" if more > 0 else ""
    return Refusal(
        sentence=f"{called} has several modules that could be meant: {shown}{also}; "
        "name one as the entry.",
        choices=choices,
    )


def _files(folder: Path) -> Iterator[Path]:
    yield from islice(_python_files(folder), MOST_FILES)


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and not name.startswith(".")
        )
        yield from (Path(place) / name for name in sorted(names) if name.endswith(".py"))


def _read(file: Path) -> Holds | None:
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        parsed = ast.parse(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    names = {name for node in parsed.body for name in _bound(node)}
    return Holds(file, tuple(module_classes(parsed.body)), frozenset(names))


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [item.id for item in node.targets if isinstance(item, ast.Name)]
    return []
