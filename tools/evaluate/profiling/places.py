"""Where NVIDIA's tools run: behind the wall, or outside where they do not work behind it.

A tool that fails behind the wall may fail because of the wall or because of what it watches, and
only the first is a reason to go outside: a candidate that fails must not be let out by that. So a
kernel of our own is watched instead (`trial`), behind the wall and then outside. Where only the
second works, this tool runs outside from then on, and whatever it says is labelled so. Where
bubblewrap is demanded, nothing ever runs outside.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from kernelwright.tools.evaluate.sandbox.walls import Wall, plain_wall, required
from kernelwright.tools.types import WallKind

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
