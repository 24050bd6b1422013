"""Text of others made harmless for a page that reads Markdown.

What comes from a file, a compiler or a model may hold anything; here it becomes text that is shown
as it is: never a link, an image, a heading, a directive or markup. The page shows no HTML at all
(`unsafe_allow_html` is off), so this is the second wall and not the first.
"""

import re
from collections.abc import Iterable, Sequence

from kernelwright.graphs.run_view.events import plain

# Of one source or log, this much is shown; the rest is in the export and in the report.
LONGEST = 24_000
# The page puts a cursor where it finds this.
_CURSOR = "\u200b"
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~:&@$=\"^])")
_WWW = re.compile(r"\bwww\.", re.IGNORECASE)
_TICKS = re.compile(r"`+")
# Fenced code, then code in a line: what Markdown leaves alone.
_CODE = re.compile(
    r"^ {0,3}(?P<fence>`{3,})[^\n]*\n.*?(?:^ {0,3}(?P=fence)`*\s*?$|\Z)"
    r"|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(r"(?<!\\)(:+)(?=[A-Za-z])")


def text(foreign: str, limit: int = 0) -> str:
    """Text of others inside a line: one line, every sign of Markdown shown as itself."""
    clean = plain(" ".join(foreign.split()), limit).replace(_CURSOR, "")
    escaped = _SPECIAL.sub(r"\\\1", clean)
    escaped = f"\\{escaped}" if clean.startswith("-") else escaped
    return _WWW.sub(lambda found: found.group().replace(".", r"\."), escaped)


def paragraphs(foreign: str, limit: int = LONGEST) -> str:
    """Text of others in its own paragraphs."""
    parts = (text(part) for part in re.split(r"\n\s*\n", cut(foreign, limit)))
    return "\n\n".join(part for part in parts if part)


def inline(foreign: str, limit: int = 0) -> str:
    """A name or a value of others as code in a line."""
    clean = plain(" ".join(foreign.split()), limit).replace(_CURSOR, "") or " "
    ticks = _fence(clean, 1)
    pad = " " if clean[0] == "`" or clean[-1] == "`" else ""
    return f"{ticks}{pad}{clean}{pad}{ticks}"


def fence(foreign: str, language: str = "") -> str:
    """A source, a difference or a message, in a fence that nothing inside can close."""
    clean = plain(cut(foreign)).replace(_CURSOR, "").strip("\n")
    ticks = _fence(clean, 3)
    return f"{ticks}{re.sub(r'[^a-z+]', '', language)}\n{clean}\n{ticks}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts; without names of columns it is a list of names and values."""
    if not any(columns):
        return "\n".join(_pair(row) for row in rows)
    lines = [_row(columns), "|" + "---|" * len(columns), *(_row(row) for row in rows)]
    return "\n".join(lines)


def mend(words: str) -> str:
    """Our own Markdown without what the page would take for directives, images or cursors.

    A model's words pass here as well, so images are shown as text: nothing is loaded for them.
    """
    clean = plain(words).replace(_CURSOR, "")
    found, end = [], 0
    for code in _CODE.finditer(clean):
        found += [_mended(clean[end : code.start()]), code.group()]
        end = code.end()
    return "".join([*found, _mended(clean[end:])])


def cut(foreign: str, limit: int = LONGEST) -> str:
    """Text of others up to a limit, and how much is missing."""
    if len(foreign) <= limit:
        return foreign
    return f"{foreign[:limit]}\n[{len(foreign) - limit} more characters]"


def _mended(words: str) -> str:
    shown = _DIRECTIVE.sub(lambda found: found.group().replace(":", r"\:"), words)
    return shown.replace("![", r"!\[")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text(cell) for cell in cells) + " |"


def _pair(cells: Sequence[str]) -> str:
    name, *rest = cells
    return f"- **{text(name)}**: " + ", ".join(text(cell) for cell in rest)


def _fence(inside: str, least: int) -> str:
    """More ticks than stand anywhere inside."""
    longest = max((len(found) for found in _TICKS.findall(inside)), default=0)
    return "`" * max(least, longest + 1)
