"""Compiled objects by the content that made them, on disk, shared by processes.

An entry is a folder that appears by one rename: it is complete or it is not there. What the
compiler said is kept with the object, because a cached compile says nothing. Entries are
checked against their hash when read; a damaged one is as good as none. Nothing is evicted: an
object is tens of kilobytes, and the folder can be deleted at any time.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from kernelwright.tools.types import CompileReport, Value

# Changes when the meaning of an entry does.
_FORMAT = "1"


class Entry(Value):
    """What is kept beside an object."""

    artifact: str
    sha256: str
    functions: tuple[str, ...]
    reports: tuple[CompileReport, ...]
    log: str


def cache_folder() -> Path:
    """`KERNELWRIGHT_HOME/cache/objects`, else this user's cache folder."""
    home = os.environ.get("KERNELWRIGHT_HOME")
    if home:
        return Path(home).expanduser() / "cache" / "objects"
    return platformdirs.user_cache_path("kernelwright") / "objects"


def cache_key(*content: str) -> str:
    """The name of an entry: a hash of everything that decides what the compiler makes."""
    joined = "\0".join((_FORMAT, *(f"{len(part)}:{part}" for part in content)))
    return hashlib.sha256(joined.encode("utf-8", errors="replace")).hexdigest()


def look_up(key: str) -> tuple[Path, Entry] | None:
    """The object of that key, or None when there is none that is whole."""
    folder = _folder(key)
    try:
        entry = Entry.model_validate_json((folder / "entry.json").read_bytes())
        artifact = folder / entry.artifact
        whole = hashlib.sha256(artifact.read_bytes()).hexdigest() == entry.sha256
    except (OSError, ValidationError):
        return None
    return (artifact, entry) if whole else None


def keep(
    key: str,
    made: Path,
    functions: tuple[str, ...],
    reports: tuple[CompileReport, ...],
    log: str,
) -> tuple[Path, Entry]:
    """Move a fresh object and what is known about it into the cache.

    When another process was faster, its entry stays: both were made from the same content.
    """
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    entry = Entry(artifact=made.name, sha256=digest, functions=functions, reports=reports, log=log)
    final = _folder(key)
    (made.parent / "entry.json").write_text(entry.model_dump_json(), encoding="utf-8")
    for attempt in range(2):
        try:
            made.parent.rename(final)
            break
        except OSError:
            if (present := look_up(key)) is not None:
                return present
            if attempt:
                raise
            shutil.rmtree(final, ignore_errors=True)
    return final / entry.artifact, entry


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A folder beside the entries (a rename must not cross file systems); gone afterwards."""
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(key: str) -> Path:
    return cache_folder() / key
