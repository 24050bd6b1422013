"""Runs another program behind a wall, to its end or to ours; nothing of it is left afterwards."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.tools.evaluate.sandbox.bubblewrap import holds_home
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, Walled, start_walled
from kernelwright.tools.evaluate.sandbox.walls import Wall
from kernelwright.tools.types.value import Value

# The end of what a program says is what tells why it failed; a table must be whole.
_KEPT_BYTES = 16 * 2**20
# Where NVIDIA's tools lie, whole: what PATH names is often a script that starts another one.
_TOOLKITS = ("/opt/nvidia", "/opt/cuda", "/usr/local/cuda")


class Ran(Value):
    """How a program ended; `status` is None where it was stopped for taking too long."""

    status: int | None
    output: str


class Program:
    """A program that runs. Use `start`, then `finish` or `aclose`."""

    def __init__(self, walled: Walled) -> None:
        self._walled = walled
        self._output = bytearray()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        behind: Wall,
        readable: tuple[Path, ...] = (),
        device: str = "cuda",
    ) -> "Program":
        """Start a program that may write in one folder.

        Args:
            command: What to run.
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
        return cls(walled)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._walled.alive

    async def finish(self, timeout_s: float) -> Ran:
        """How it ended, or that it was stopped after so many seconds from now."""
        status: int | None = None
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._listener)
                status = await self._walled.wait()
        except TimeoutError:
            pass
        finally:
            # Also after a good end: what it left behind must not disturb a measurement.
            await self.aclose()
        return Ran(status=status, output=self._output.decode(errors="replace"))

    async def aclose(self) -> None:
        """End it and everything that it started."""
        await self._walled.end()
        self._listener.cancel()
        await asyncio.wait({self._listener})

    async def _listen(self) -> None:
        while part := await self._walled.output.read(65_536):
            self._output += part
            del self._output[:-_KEPT_BYTES]


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
    """Start a program as `Program.start` does, and see it end, after `timeout_s` at the latest.

    Raises:
        OSError: When it cannot be started.
    """
    program = await Program.start(
        command,
        environment=environment,
        folder=folder,
        behind=behind,
        readable=readable,
        device=device,
    )
    return await program.finish(timeout_s)


def installed(program: Path) -> tuple[Path, ...]:
    """What of the file system a program and its helpers are; never a folder that holds a home."""
    folders = {program.parent, program.resolve().parent, *map(Path, _TOOLKITS)}
    return (program, *(folder for folder in sorted(folders) if not holds_home(folder)))
