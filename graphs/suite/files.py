"""Which files of a folder are a suite's tasks, and in which order."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

_NUMBERS = re.compile(r"(\d+)")


def task_files(folder: Path, match: Sequence[str] = ()) -> tuple[Path, ...]:
    """The Python files of a folder, `9_...` before `10_...`.

    Args:
        folder: Where they lie; folders in it are not looked into.
        match: Keeps files that any of these fits: a number for files that begin with it, a range
            of numbers as `20-29`, a pattern with `*`, or a part of the name.
    """
    found = [path for path in folder.glob("*.py") if not path.name.startswith(("_", "."))]
    kept = [path for path in found if not match or any(fits(path.stem, one) for one in match)]
    return tuple(sorted(kept, key=natural))


def fits(stem: str, wanted: str) -> bool:
    """Whether a file's name is among what is wanted; see `task_files`."""
    number = re.match(r"\d+", stem)
    if wanted.isdecimal():
        return number is not None and int(number[0]) == int(wanted)
    if between := re.fullmatch(r"(\d+)-(\d+)", wanted):
        first, last = int(between[1]), int(between[2])
        return number is not None and first <= int(number[0]) <= last
    if any(sign in wanted for sign in "*?["):
        return fnmatchcase(stem.lower(), wanted.lower())
    return wanted.lower() in stem.lower()


def natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """A key to sort by, in which digits compare as numbers."""
    parts = _NUMBERS.split(path.name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)
