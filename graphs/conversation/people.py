"""Where a person's things are: a folder each, so that one never meets another's.

`<home>/people/<slug>/` holds their runs, the state of their conversations, the files they brought
and what was made for them to take home.
"""

import hashlib
import re
from pathlib import Path

_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def slug(name: str) -> str:
    """A folder's name for any name; two names never share one."""
    if _SAFE.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24] or "person"
    # A dot keeps these apart from the names that stand for themselves.
    return f"{readable}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def folder_of(home: Path, person: str) -> Path:
    """The folder of a person, which is the home of their runs; not created here."""
    return home / "people" / slug(person)


def every_folder(home: Path) -> tuple[Path, ...]:
    """The folders of everybody who was here."""
    people = home / "people"
    return tuple(sorted(path for path in people.iterdir())) if people.is_dir() else ()


def file_name(name: str) -> str:
    """A file's name that is safe to write, from what a person's machine called it."""
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", Path(name.replace("\\", "/")).stem).strip("_")[:48]
    return f"{stem or 'module'}.py"
