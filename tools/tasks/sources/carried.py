"""Files that a task carries, as they were when it was read.

Whoever runs the task later, here or elsewhere, lays them out anew, so a file that is edited
meanwhile changes nothing. Small ones lie in the task, others where they are, known by their hash.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from kernelwright.tools.runtime import home
from kernelwright.tools.tasks.project import Place
from kernelwright.tools.types import Project, ProjectFile, RefusedError, Task, refuse

STATE = "weights.pt"  # what the weights of a model that was built are kept as
_PIECE_BYTES = 1 << 24
_LARGEST_CARRIED, _CARRIED = 1 << 20, 2 << 20  # bytes: of one file, of all of them


def elsewhere(task: Task) -> tuple[Path, ...]:
    """Files that a task's code reads where they lie, as they are too large to be carried."""
    saved = (item for item in (task.batch, task.state) if item is not None)
    files = (*(task.project.files if task.project else ()), *saved)
    return tuple(Path(item.origin) for item in files if item.content is None)


def kept(place: Place, read: Iterable[Path]) -> Project:
    """The project as a value, with the files that were read and are still there.

    Text comes first, then what is small; what is too large to be carried is read where it lies.
    """
    folder, left = place.folder, _CARRIED
    wanted = {file for file in read if file.is_relative_to(folder) and file != place.file}
    found: list[ProjectFile] = []
    for file in sorted(wanted, key=lambda item: (item.suffix != ".py", _size(item), str(item))):
        with contextlib.suppress(OSError):
            taken = file_as_it_is(file, file.relative_to(folder).as_posix(), left)
            left -= taken.size_bytes if taken.content is not None else 0
            found.append(taken)
    return Project(
        module=place.module,
        file=place.file.relative_to(folder).as_posix(),
        roots=tuple(root.relative_to(folder).as_posix() for root in place.roots),
        names=place.names,
        files=tuple(sorted(found, key=lambda item: item.path)),
    )


def file_as_it_is(file: Path, name: str, left: int = _LARGEST_CARRIED) -> ProjectFile:
    """A file under that name, with its content where that is small; OSError where it is gone."""
    return _held(file.read_bytes(), name, file, left)


def bytes_as_they_are(content: bytes, name: str, place: Path) -> ProjectFile:
    """The same of bytes, which are written to a place where they are not small."""
    found = _held(content, name, place, _LARGEST_CARRIED)
    if found.content is None:
        place.write_bytes(content)
    return found


def _held(content: bytes, name: str, place: Path, left: int) -> ProjectFile:
    carried = len(content) <= min(left, _LARGEST_CARRIED)
    return ProjectFile(
        path=name,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        content=base64.b64encode(content).decode() if carried else None,
        origin="" if carried else str(place),
    )


def with_state_kept(task: Task, scratch: Path) -> Task:
    """The task whose weights, if they are in a process's folder, lie in ours, by their hash.

    What lies there was written beside a user's code, so only the bytes of a file of that name are
    taken, and no link is followed.

    Raises:
        RefusedError: It is not what the task says.
    """
    state = task.state
    if state is None or state.content is not None:
        return task
    place = home() / "weights" / f"{state.sha256}.pt"
    kept = state.model_copy(update={"origin": str(place)})
    if place.is_file():
        _unchanged(kept)
        return task.model_copy(update={"state": kept})
    place.parent.mkdir(parents=True, exist_ok=True)
    opened = os.open(scratch / STATE, os.O_RDONLY | os.O_NOFOLLOW)
    fresh = place.with_suffix(f".{os.getpid()}")
    with os.fdopen(opened, "rb") as source, fresh.open("wb") as target:
        copied = _copied(source, target)
    if copied != state.sha256:
        fresh.unlink()
        raise _changed(state)
    fresh.rename(place)
    return task.model_copy(update={"state": kept})


def _copied(source: BinaryIO, target: BinaryIO) -> str:
    """The hash of what is copied, found on the way: reading half a gigabyte once more is dear."""
    digest = hashlib.sha256()
    while piece := source.read(_PIECE_BYTES):
        digest.update(piece)
        target.write(piece)
    return digest.hexdigest()


def lay_out(project: Project, source: str) -> Place:
    """Write the project, with the text of the file itself, into a fresh folder of this process.

    Raises:
        RefusedError: A file that is not carried is not there, or is another by now.
    """
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-project-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for item in project.files:
        place = _inside(folder, item.path)
        if item.content is not None:
            place.write_bytes(content_of(item))
        else:
            place.symlink_to(_unchanged(item))
    file = _inside(folder, project.file)
    file.write_text(source, encoding="utf-8")
    roots = tuple((folder / root).resolve() for root in project.roots)
    return Place(
        module=project.module,
        file=file,
        roots=roots,
        names=project.names,
        visible=(folder,),
        folder=folder,
    )


def content_of(item: ProjectFile) -> bytes:
    """What the file held when it was read; RefusedError where that cannot be had any more."""
    if item.content is not None:
        return base64.b64decode(item.content)
    try:
        content = Path(item.origin).read_bytes()
    except OSError:
        raise _missing(item) from None
    if hashlib.sha256(content).hexdigest() != item.sha256:
        raise _changed(item)
    return content


def _inside(folder: Path, name: str) -> Path:
    place = (folder / name).resolve()
    if not place.is_relative_to(folder):
        raise refuse(f"The task names the file {name!r} outside of its project.")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _unchanged(item: ProjectFile) -> Path:
    place = Path(item.origin)
    try:
        with place.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        raise _missing(item) from None
    if found != item.sha256:
        raise _changed(item)
    return place


def _missing(item: ProjectFile) -> RefusedError:
    return refuse(f"The task needs {item.path}, which is not on this machine.", "", 3)


def _changed(item: ProjectFile) -> RefusedError:
    return refuse(f"{item.path} was changed since the task was read; read the file again.")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
