"""Small habits of the text in prompts: fences, times, tables, and long things made short."""

import re
from collections.abc import Iterable

_CELL_CHARACTERS = 300


def fenced(language: str, text: str) -> str:
    """Text between fences that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def milliseconds(value: float | None) -> str:
    """A time with its unit, or a dash."""
    return "-" if value is None else f"{value:.4g} ms"


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text that is too long, and how much is missing between."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


def table(header: str, rows: Iterable[str]) -> str:
    """A table of rows made by `row`; the header's cells are separated by `|`."""
    names = header.split("|")
    return "\n".join((row(*names), row(*("---" for _ in names)), *rows))


def row(*cells: str) -> str:
    """A line of a table; what would break the table is replaced, and long cells are cut."""
    plain = (
        shortened(" ".join(cell.split()).replace("|", "/"), _CELL_CHARACTERS) for cell in cells
    )
    return f"| {' | '.join(plain)} |"
