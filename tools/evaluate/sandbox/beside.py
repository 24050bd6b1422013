"""What a user's file needs of the files beside it, so that a wall lets in these and no others.

A file may import modules that lie in its folder, and these may import further ones. A source that
asks where it lies (`__file__`) reads files of its folder, which is then let in as a whole
unless somebody's home would come with it. Not seen: names that are put together at run time.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from kernelwright.tools.evaluate.sandbox.bubblewrap import holds_home

_MOST_FILES = 200


def beside(source: str, path: str) -> tuple[Path, ...]:
    """Files and folders beside a user's file that its source refers to, sorted."""
    folder = Path(path).absolute().parent
    found: set[Path] = set()
    waiting = [source]
    while waiting and len(found) < _MOST_FILES:
        text = waiting.pop()
        if "__file__" in text and not holds_home(folder):
            return (folder,)
        for name in _imported(text):
            place = _module(folder, name)
            if place is not None and place not in found:
                found.add(place)
                waiting += _sources(place)
    return tuple(sorted(found))


def _imported(source: str) -> Iterator[str]:
    """The first names of what a source imports."""
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # whoever reads the file says what is wrong with it
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _module(folder: Path, name: str) -> Path | None:
    for place in (folder / f"{name}.py", folder / name):
        if place.exists() and (place.suffix == ".py" or any(place.glob("*.py"))):
            return place
    return None


def _sources(place: Path) -> list[str]:
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))[:_MOST_FILES]
    texts = []
    for file in files:
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return texts
