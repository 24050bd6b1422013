"""The right to time on a device, among all processes of a machine: one at a time.

A file that is locked, so that it is given back whatever becomes of its holder. Two devices of a
cluster may be one: processes that share a machine's processors, or two clusters on one GPU.
"""

import asyncio
import fcntl
import os
import re
from pathlib import Path
from types import TracebackType

_POLL_S = 0.01


class FileLease:
    """A lease by a locked file; within one program it is a lock as any other.

    Args:
        folder: Where such files lie.
        unit: What is held.
    """

    def __init__(self, folder: Path, unit: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', unit)}.lock"
        self._within = asyncio.Lock()
        self._file: int | None = None

    async def __aenter__(self) -> None:
        """Wait for it."""
        await self._within.acquire()
        file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(file):  # noqa: ASYNC110 - nobody in this program would set an event
                await asyncio.sleep(_POLL_S)
        except BaseException:
            os.close(file)
            self._within.release()
            raise
        self._file = file

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give it back."""
        assert self._file is not None, "who leaves has entered"
        os.close(self._file)
        self._file = None
        self._within.release()


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
