"""Replaying a recorded run: the same decisions again, or the first that differs."""

import asyncio
import sys
from pathlib import Path

from rich.text import Text

from graphs.words import count, one_line, plain
from ui.commands.output import console

DIFFERS = 1
AROUND = 60


def replay(run: str, home: Path | None) -> int:
    """Replay a run and say what came of it; the exit status is 1 where a decision differs."""
    from graphs.search.replay import replay

    told = asyncio.run(replay(run, home=home))
    if told.reworded:
        words = f"{count(len(told.reworded), 'question')} would be asked in other words now"
        sys.stderr.write(f"note: {words}: {', '.join(told.reworded)}\n")
    if told.readings:
        read = [item.key for item in told.readings]
        words = f"{count(len(read), 'reading')} of {len(read) + told.same_readings} differ"
        sys.stderr.write(f"note: {words}: {', '.join(read)}\n")
    if told.difference is not None:
        _tell(told.difference.key, told.difference.recorded, told.difference.replayed, told.same)
        return DIFFERS
    sys.stdout.write(f"the same {count(told.same, 'decision')}\n")
    if told.ended:
        sys.stdout.write(f"the record ends there: it does not hold {told.ended}\n")
    return 0


def _tell(key: str, recorded: str, replayed: str, same: int) -> None:
    out = console()
    out.print(Text(f"the first difference, after {same} that are the same: {plain(key)}"))
    at = _first(recorded, replayed)
    for name, text in (("recorded", recorded), ("replayed", replayed)):
        out.print(Text(f"  {name}: {_excerpt(text, at)}"), soft_wrap=True)
    sys.stderr.write("this version decides otherwise than the one that recorded the run\n")


def _first(left: str, right: str) -> int:
    """Where two texts part."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _excerpt(text: str, at: int) -> str:
    """What stands around that place; nothing where there is no text."""
    if not text:
        return "(no such decision)"
    begin = max(0, at - AROUND)
    words = one_line(text[begin : at + AROUND], 2 * AROUND + 10)
    return ("..." if begin else "") + words + ("..." if at + AROUND < len(text) else "")
