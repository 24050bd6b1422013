"""Fills Kernelwright's own folder of bytecode, once, where workers would find none.

A process of ours imports what workers import and no file of anybody's, outside of walls, and
Python writes the bytecode (see `bytecode`). The first worker of a machine waits for that, some ten
seconds; every later one is as quick as elsewhere. Programs that start at once take turns, and
Python puts each file in its place by a rename. Where the folder cannot be written, or the import
fails, workers start as slowly as they did.
"""

import asyncio
import contextlib
import fcntl
import logging
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from kernelwright.tools.evaluate.sandbox import bytecode
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, start_walled
from kernelwright.tools.evaluate.sandbox.walls import plain_wall

log = logging.getLogger(__name__)

LIMIT_S = 180.0
_POLL_S = 0.1
_TRIED: set[Path] = set()


async def fill() -> None:
    """See to it that workers find bytecode; at once where they do, and tried once a program."""
    if not _missing():
        return
    folder = bytecode.own_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with asyncio.timeout(LIMIT_S), _turn(folder):
            if _missing():  # another program was at it meanwhile
                log.warning("torch has no bytecode here; it is compiled once, into %s", folder)
                await _imported(folder)
    except (OSError, TimeoutError) as error:
        log.debug("no bytecode in %s: %r", folder, error)
    first = folder not in _TRIED
    _TRIED.add(folder)
    if first and not bytecode.filled():
        log.warning("no bytecode could be kept in %s: %s", folder, remedy())


def remedy() -> str:
    """What gives the packages bytecode of their own."""
    torch = bytecode.torch_folder()
    packages = torch.parent if torch is not None else "site-packages"
    return f"{sys.executable} -m compileall -q {packages} (or install by uv --compile-bytecode)"


def _missing() -> bool:
    """Whether there is something to fill, and this program did not try before."""
    if not bytecode.wanted():
        return False
    return bytecode.own_folder() not in _TRIED and not bytecode.filled()


@contextlib.asynccontextmanager
async def _turn(folder: Path) -> AsyncIterator[None]:
    """One's turn to fill the folder, among all programs and everybody in this one."""
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_S)
        yield


async def _imported(folder: Path) -> None:
    """Import what workers import, in a process that may write its bytecode into the folder."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-bytecode-") as scratch:
        place = Path(scratch)
        process = await start_walled(
            Enclosure(
                argv=(sys.executable, "-P", "-m", bytecode.WORKER_IMPORTS),
                scratch=place,
                environment=worker_environment(place) | {bytecode.VARIABLE: str(folder)},
            ),
            behind=plain_wall("it imports what is ours and nobody else's"),
        )
        try:
            said = await process.output.read()
            status = await process.wait()
        finally:
            await asyncio.shield(process.end())
    if status != 0:
        log.debug("importing ended with %s: %s", status, said.decode(errors="replace"))
