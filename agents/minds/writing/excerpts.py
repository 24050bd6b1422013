"""Lines of a source with their numbers, around those that a message is about."""

import re
from collections.abc import Iterable

# A line of g++ ("kernel.cpp:7:13: error: ...") or NVRTC ("kernel.cu(7): error: ...").
_PLACE = re.compile(r"kernel\.(?:cu|cpp)[(:](\d+)[):]")
_ERROR = re.compile(r"\berror\b|undefined reference", re.IGNORECASE)
_MESSAGES = 8
_WIDTH = 200


def excerpt(text: str, lines: Iterable[int], *, around: int = 2) -> str:
    """The named lines (from 1) and their neighbours, numbered; "" when none of them exists.

    The lines themselves are marked by `>`; gaps are shown as `...`.
    """
    source = text.splitlines()
    marked = {line for line in lines if 1 <= line <= len(source)}
    near = {n for line in marked for n in range(line - around, line + around + 1)}
    shown: list[str] = []
    last = 0
    for number in sorted(n for n in near if 1 <= n <= len(source)):
        if last and number > last + 1:
            shown.append("      ...")
        mark = ">" if number in marked else " "
        shown.append(f"{mark}{number:5d}  {source[number - 1][:_WIDTH]}")
        last = number
    return "\n".join(shown)


def numbered(text: str) -> str:
    """A whole source with its line numbers."""
    return "\n".join(f"{n:4d}  {line}" for n, line in enumerate(text.splitlines(), start=1))


def compiler_errors(log: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The compiler's error messages, the first ones, and the kernel's lines that they name."""
    lines = [line.strip() for line in log.splitlines()]
    errors = list(dict.fromkeys(line for line in lines if _ERROR.search(line)))[:_MESSAGES]
    places = dict.fromkeys(int(found.group(1)) for e in errors if (found := _PLACE.search(e)))
    return tuple(errors), tuple(places)
