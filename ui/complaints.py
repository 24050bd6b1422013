"""What goes wrong at the command line, as one sentence and an exit status.

2 is an input that cannot be used, 3 a machine that lacks something. Anything else that is raised
is Kernelwright's own fault and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `kernelwright --help` need not wait for it
    from kernelwright.tools.types import Refusal
    from kernelwright.tools.types.task import Precision

UNUSABLE, LACKING = 2, 3


class Complaint(Exception):  # noqa: N818 - it is shown to a person, not handled
    """One sentence for the person, and the exit status that goes with it."""

    def __init__(self, sentence: str, status: int = UNUSABLE) -> None:
        super().__init__(" ".join(sentence.split()))
        self.status = status


def allowed_precisions(words: str | None) -> tuple[Precision, ...]:
    """Precisions as a person lists them, `tf32,fp16`; Complaint names the ones there are."""
    from kernelwright.tools.types.task import PRECISIONS

    known: dict[str, Precision] = {name: name for name in PRECISIONS}
    named = [word.strip().lower() for word in (words or "").split(",") if word.strip()]
    for word in named:
        if word not in known:
            listed = ", ".join(known)
            raise Complaint(f"Unknown precision {word!r} to allow; known are {listed}.")
    return tuple(dict.fromkeys(known[word] for word in named))


def refused(refusal: Refusal) -> Complaint:
    """A refusal as a complaint."""
    return Complaint(refusal.sentence, refusal.exit_status)


def complaint_of(error: Exception) -> Complaint | None:
    """What rooms below raise for a person's eyes, as a complaint; None if we are broken."""
    from kernelwright.tools.archive import RunError
    from kernelwright.tools.candidates import ContractError
    from kernelwright.tools.evaluate.executors.batch.bundle import BundleError
    from kernelwright.tools.export import ExportRefusedError
    from kernelwright.tools.types import EnvironmentLacksError

    if isinstance(error, Complaint):
        return error
    if isinstance(error, EnvironmentLacksError):
        return Complaint(str(error), LACKING)
    if isinstance(error, BundleError | ContractError | ExportRefusedError | RunError):
        return Complaint(str(error))
    if hasattr(error, "format_message"):  # the parser's, whichever library it is built on
        return Complaint(usage_words(error))
    return next(filter(None, map(_of_the_disk, led_to(error))), None)


_FULL, _READ_ONLY = "there is no space left on the disk", "the file system is read-only"
_OF_FILES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.ENOTDIR: "a file is where a folder should be",
    errno.EACCES: "a file or folder may not be used by this user",
}
_OF_DATABASES = {
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": "a database could not be written; is the disk full?",
    "SQLITE_READONLY": "a database is read-only",
    "SQLITE_CANTOPEN": "a database could not be opened",
}

_ELSEWHERE = "folders elsewhere are named by KERNELWRIGHT_HOME, --run-dir (runs) and TMPDIR"


def led_to(error: BaseException) -> Iterator[BaseException]:
    """An error and whatever was raised on the way to it."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [on for on in (one.__context__, one.__cause__) if on is not None]


def _of_the_disk(error: BaseException) -> Complaint | None:
    """What a disk does not let us write; runs are written before anything acts on them."""
    words = ""
    if isinstance(error, OSError):
        words = _OF_FILES.get(error.errno or 0, "")
    elif isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        words = next((_OF_DATABASES[known] for known in _OF_DATABASES if known in name), "")
    if not words:
        return None
    where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
    return Complaint(f"{words}{where}; {_ELSEWHERE}", LACKING)


def usage_words(error: Exception) -> str:
    """A parser's error as one sentence that names the help."""
    said = getattr(error, "format_message", lambda: str(error))
    words = str(said()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kernelwright"
    return f"{words[:1].lower()}{words[1:]} (see {path} --help)"


def asked_for(file: Path | None, build: str | None, name: str) -> Path:
    """What a task is read from: the one of the two that was given; Complaint if not one was."""
    if (file is None) == (build is None):
        what = "argument" if name.isupper() else "option"
        if file is not None:
            raise Complaint(f"give {name} or --build, not both")
        raise Complaint(f"missing {what} '{name}', or --build MODULE:FUNCTION")
    if file is not None:
        return file
    assert build is not None
    if not build.rpartition(":")[2].isidentifier() or ":" not in build:
        raise Complaint(f"--build {build} is not of the form MODULE:FUNCTION")
    return Path(build)


def existing_target(path: Path) -> Path:
    """What a task can be read from, absolute; Complaint if nothing is there, or no module can be.

    A Python file, a notebook, a zip, a folder, or a name for an import (`package.layers:Block`).
    """
    from kernelwright.tools.tasks.refusals import not_a_module
    from kernelwright.tools.tasks.sources import is_name

    target = path.absolute()
    if is_name(target) or target.is_dir():
        return target
    file = target if target.exists() else target.with_name(target.name.rpartition(":")[0] or " ")
    if not file.exists():
        raise Complaint(f"there is no file {path}")
    if not file.is_file():
        raise Complaint(f"{path} is not a file")
    if sentence := not_a_module(file.name):
        raise Complaint(sentence)
    try:
        with file.open("rb"):
            return target
    except OSError as error:
        raise Complaint(f"cannot read {path}: {error.strerror}") from None


def writable_file(path: Path) -> Path:
    """A path at which a file can be written, said before any work is done; Complaint if not."""
    if path.is_dir():
        raise Complaint(f"cannot write {path}: it is a folder")
    nearest = next(p for p in path.absolute().parents if p.exists())
    target = path if path.exists() else nearest
    if not nearest.is_dir() or not os.access(target, os.W_OK):
        raise Complaint(f"cannot write {path}: {target} is not writable")
    return path
