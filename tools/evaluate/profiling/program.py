"""Runs another program behind a wall, to its end or to ours; nothing of it is left afterwards."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.evaluate.process.bubblewrap import holds_home
from tools.evaluate.process.walled import Enclosure, Walled, start_walled
from tools.evaluate.process.walls import Wall
from tools.nouns.value import Value

# The end of what a program says is what tells why it failed; a table must be whole.
_KEPT_BYTES = 16 * 2**20
# Where NVIDIA's tools lie, whole: what PATH names is often a script that starts another one.
_TOOLKITS = ("/opt/nvidia", "/opt/cuda", "/usr/local/cuda")


class Ran(Value):
    """How a program ended; `status` is None where it was stopped for taking too long."""

    status: int | None
    output: str


async def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str],
    folder: Path,
    behind: Wall,
    readable: tuple[Path, ...] = (),
    device: str = "cuda",
) -> Ran:
    """Run a program that may write in one folder.

    Args:
        command: What to run.
        timeout_s: When it is stopped.
        environment: All that it gets of ours.
        folder: Its folder.
        behind: Which wall stands around it; a plain one where it does not work behind others.
        readable: What it may read beside the system, Python and us.
        device: `cuda` where it needs the GPU.

    Raises:
        OSError: When it cannot be started.
    """
    walled = await start_walled(
        Enclosure(
            argv=tuple(command),
            scratch=folder,
            environment=environment,
            readable=readable,
            device=device,
        ),
        behind,
    )
    output = bytearray()
    status: int | None = None
    try:
        async with asyncio.timeout(timeout_s):
            await _listen(walled, output)
            status = await walled.wait()
    except TimeoutError:
        pass
    finally:
        # Also after a good end: what it left behind must not disturb a measurement.
        await walled.end()
    return Ran(status=status, output=output.decode(errors="replace"))


def installed(program: Path) -> tuple[Path, ...]:
    """What of the file system a program and its helpers are; never a folder that holds a home."""
    folders = {program.parent, program.resolve().parent, *map(Path, _TOOLKITS)}
    return (program, *(folder for folder in sorted(folders) if not holds_home(folder)))


async def _listen(walled: Walled, output: bytearray) -> None:
    while part := await walled.output.read(65_536):
        output += part
        del output[:-_KEPT_BYTES]
