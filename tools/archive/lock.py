"""One process a run: two searches over one archive would interleave their rounds.

The lock belongs to the process and ends with it, however it ends; processes that it forks do
not inherit it. Only advisory, and only on this machine: two hosts over one network folder are
not kept apart.
"""

import fcntl
import os
from pathlib import Path

from kernelwright.tools.archive.errors import RunBusyError

# A POSIX lock is the process's own: taking it twice succeeds, and closing any descriptor of the
# file drops it. Hence this table, consulted before the file is touched.
_held: dict[Path, int] = {}


def claim(folder: Path) -> None:
    """Take the run for this process.

    Raises:
        RunBusyError: When this or another process has it already.
    """
    path = (folder / "lock").resolve()
    if path in _held:
        raise RunBusyError(f"run {folder.name} is already being worked on in this process")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise RunBusyError(f"run {folder.name} is being worked on by another process") from None
    _held[path] = descriptor


def release(folder: Path) -> None:
    """Give the run back; nothing happens when it was not taken."""
    descriptor = _held.pop((folder / "lock").resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether some process works on the run right now."""
    try:
        claim(folder)
    except RunBusyError:
        return True
    release(folder)
    return False
