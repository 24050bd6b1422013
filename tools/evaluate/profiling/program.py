"""Runs a program behind a wall, to its end or to ours; NVIDIA's tools outside where they must.

Nothing of a program is left afterwards. A tool that fails behind the wall may fail because of the
wall or because of what it watches, and only the first is a reason to go outside: a candidate that
fails must not be let out by that. So a kernel of our own is watched instead (`trial`), behind the
wall and then outside. Where only the second works, this tool runs outside from then on, and
whatever it says is labelled so. Where bubblewrap is demanded, nothing ever runs outside.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from kernelwright.tools.evaluate.sandbox.walled import Enclosure, Walled, start_walled
from kernelwright.tools.evaluate.sandbox.walls import Wall, holds_home, plain_wall, required
from kernelwright.tools.types import WallKind
from kernelwright.tools.types.value import Value

Found = TypeVar("Found")
# By tool and wall, whether the tool was seen to work outside only.
_OUTSIDE: dict[tuple[Path, str], bool] = {}


class Seen(NamedTuple, Generic[Found]):
    """What a tool found, and `outside`: why it was not behind the wall, "" where it was."""

    found: Found
    outside: str = ""


async def seen(
    tool: Path,
    behind: Wall,
    look: Callable[[Wall], Awaitable[Found]],
    *,
    worked: Callable[[Found], bool],
    trial: Callable[[Wall], Awaitable[bool]],
) -> Seen[Found]:
    """Let a tool look, where it works.

    Args:
        tool: The program.
        behind: The wall that stands here.
        look: Runs the tool behind a wall.
        worked: Whether what it found shows that the tool itself worked.
        trial: Whether the tool works behind a wall with a kernel of ours.
    """
    key = (tool, behind.isolation.words)
    if behind.kind is WallKind.NONE:
        return Seen(await look(behind))
    if not _OUTSIDE.get(key, False):
        found = await look(behind)
        if worked(found) or required() or key in _OUTSIDE:
            return Seen(found)
        _OUTSIDE[key] = not await trial(behind) and await trial(_plain(tool, behind))
        if not _OUTSIDE[key]:
            return Seen(found)
    why = f"outside the wall: {tool.name} does not work behind {behind.kind.value}"
    return Seen(await look(_plain(tool, behind)), why)


def stays_behind(tool: Path, behind: Wall) -> bool:
    """Whether a tool was not yet seen to work outside only."""
    return behind.kind is WallKind.NONE or not _OUTSIDE.get((tool, behind.isolation.words), False)


def _plain(tool: Path, behind: Wall) -> Wall:
    return plain_wall(f"{tool.name} does not work behind {behind.kind.value}")


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
