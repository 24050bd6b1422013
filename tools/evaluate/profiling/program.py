"""Runs another program to its end, or to ours: in its own session, with a deadline."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.nouns.value import Value

# The end of what a program says is what tells why it failed; a table must be whole.
_KEPT_BYTES = 16 * 2**20


class Ran(Value):
    """How a program ended; `status` is None where it was stopped for taking too long."""

    status: int | None
    output: str


async def run(
    command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str], folder: Path
) -> Ran:
    """Run a program; nothing of its session outlives this call, however that ends.

    Raises:
        OSError: When it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    output = bytearray()
    status: int | None = None
    try:
        async with asyncio.timeout(timeout_s):
            await _listen(process, output)
            status = await process.wait()
    except TimeoutError:
        pass
    finally:
        # Also after a good end: what it left behind must not disturb a measurement.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return Ran(status=status, output=output.decode(errors="replace"))


async def _listen(process: asyncio.subprocess.Process, output: bytearray) -> None:
    while process.stdout is not None and (part := await process.stdout.read(65_536)):
        output += part
        del output[:-_KEPT_BYTES]
