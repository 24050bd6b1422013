"""Unpacks a zip that a person gave, into a folder of ours that is named for its content.

An archive is data from elsewhere: names that lead out of the folder, links, encrypted members and
what would fill the disk are refused, and sizes are counted while bytes come out, not believed.
Not covered: archives in archives, and other kinds than zip.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from kernelwright.tools.runtime import home
from kernelwright.tools.types import Refusal, RefusedError, refuse

LARGEST_ZIP_BYTES = 64 << 20
LARGEST_UNPACKED_BYTES = 256 << 20
MOST_MEMBERS = 5000
_BLOCK = 1 << 20
_KEPT_S = 30 * 24 * 3600.0
# What machines put into archives that no module reads.
_LEFT_OUT = frozenset({"__MACOSX", "__pycache__", ".git", ".hg", ".venv", "node_modules"})


def unpacked(path: Path) -> Path | Refusal:
    """The folder with an archive's files, the same for the same archive; or why there is none.

    Where everything is in one folder that is no package, that folder.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_ZIP_BYTES:
            return Refusal(sentence=f"{path.name} is too large an archive: {_words(size)}.")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:24]
        place = home() / "unpacked" / digest
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            _forget_old(place.parent)
            _unpack(path, place)
        os.utime(place)
        return _project(place)
    except RefusedError as refused:
        return refused.refusal
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError) as error:
        return Refusal(sentence=f"{path.name} is no archive that can be unpacked: {error}.")
    except (OSError, ValueError, RuntimeError) as error:
        said = getattr(error, "strerror", None) or error
        return Refusal(sentence=f"{path.name} cannot be unpacked: {said}.")


def _unpack(path: Path, place: Path) -> None:
    """Into a folder beside the place, which takes its name when it is whole."""
    fresh = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=place.parent))
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, path.name)
            left = LARGEST_UNPACKED_BYTES
            for member in members:
                left = _write(archive, member, fresh, left, path.name)
        with suppress(OSError):  # somebody else was first
            fresh.rename(place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _members(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """The files that are taken; RefusedError for one that must not be in an archive."""
    members = [item for item in archive.infolist() if not _is_left_out(item.filename)]
    if len(members) > MOST_MEMBERS:
        raise refuse(f"{name} holds {len(members)} files; {MOST_MEMBERS} are the most.")
    for item in members:
        parts = PurePosixPath(item.filename.replace("\\", "/"))
        leads_out = parts.is_absolute() or ".." in parts.parts or ":" in item.filename
        if leads_out or not parts.parts:
            raise refuse(f"{name} names the file {item.filename!r}, which leads out of it.")
        mode = item.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise refuse(f"{name} holds {item.filename!r}, which is a link or a device, no file.")
        if item.flag_bits & 1:
            raise refuse(f"{name} is encrypted, so it cannot be read.")
    return members


def _is_left_out(name: str) -> bool:
    return bool(_LEFT_OUT.intersection(name.replace("\\", "/").split("/")))


def _write(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, left: int, name: str
) -> int:
    """Write one member; how many bytes may still come."""
    place = folder.joinpath(*PurePosixPath(member.filename.replace("\\", "/")).parts)
    if member.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        return left
    place.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, place.open("xb") as target:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                most = _words(LARGEST_UNPACKED_BYTES)
                raise refuse(f"{name} holds more than {most} when it is unpacked.")
            target.write(block)
    return left


def _project(place: Path) -> Path:
    """The folder itself, or the one folder that it holds."""
    while True:
        held = list(place.iterdir())
        if len(held) != 1 or not held[0].is_dir() or (held[0] / "__init__.py").is_file():
            return place
        if held[0].name == "src":
            return place
        place = held[0]


def _forget_old(folder: Path) -> None:
    """What nobody read for a month is made again from its archive when it is wanted."""
    for place in folder.iterdir():
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > _KEPT_S:
                shutil.rmtree(place, ignore_errors=True)


def _words(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
