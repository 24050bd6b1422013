"""Finds single sizes in plain words: `with 4096 columns`, `batch size 64`, `8k rows`.

Each becomes `columns=4096` or `rows=8192`: the last or the first dimension of the inputs. Not
covered: dimensions between them, such as channels.
"""

import re

_SIZE = r"(?P<{0}>\d{{1,9}}k?)"
_ROWS = r"rows?|batch(?:es| ?size)?|samples?|tokens?|zeilen"
_COLUMNS = r"columns?|cols?|features?|hidden(?: ?(?:size|dim|units))?|wide|width|spalten"
_BEFORE = rf"(?<![\w.x]){_SIZE.format('before')}\s+(?P<named>{_ROWS}|{_COLUMNS})\b"
_AFTER = (
    rf"\b(?P<name>{_ROWS}|{_COLUMNS})(?: of| to| is|:|=| =)?\s+{_SIZE.format('after')}(?![\w.x])"
)
_SAID = re.compile(rf"{_BEFORE}|{_AFTER}")
_AROUND = re.compile(
    r"\b(?:with|use|using|make|it|set|change|switch|to|have|has|take|for|at|and|a|an|the|of|"
    r"rather|instead|only|but|now|please|try|want|i|need|number|input|inputs|what about|how about"
    r"|let us|say|my|there|are|is|shapes?|go|run|on|mit)\b"
)


def sizes_in(words: str) -> tuple[str, ...]:
    """The sizes of a clause that says nothing else; none where it does."""
    if re.search(r"\w", _AROUND.sub(" ", _SAID.sub(" ", words))):
        return ()
    return tuple(dict.fromkeys(map(_written, _SAID.finditer(words))))


def sizes_with(words: str) -> tuple[str, ...]:
    """The sizes that stand among other words, as beside a file."""
    return tuple(dict.fromkeys(map(_written, _SAID.finditer(words))))


def _written(match: re.Match[str]) -> str:
    name = match["named"] or match["name"]
    size = match["before"] or match["after"]
    count = int(size[:-1]) * 1024 if size.endswith("k") else int(size)
    return f"{'rows' if re.fullmatch(_ROWS, name) else 'columns'}={count}"
