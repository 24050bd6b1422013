"""Understands a sentence with several wishes in it, as far as each can stand alone.

`pause and show me the code` are two wishes, `compare v3 and v5` is one: a word that joins parts
the sentence only where every part is understood.
"""

import re
from collections.abc import Callable

from agents.assistant.wishes import Wish

# One clause is understood, or it is not.
Understand = Callable[[str], tuple[Wish, ...]]

_STRONG = re.compile(
    (
        r"(?:(?<=[\w)\]\"'])[.!?;]+(?=\s|$)|\n+|[,;]?\s+(?:and\s+)?(?:then|afterwards|"
        r"after that|und dann)\s+)"
    ),
    re.I,
)
_WEAK = re.compile(
    r"\s*,\s+(?:and |but |or )?(?!\d)|\s+(?:and also|and|but|also|plus|und|aber)\s+|"
    r"\s+with\s+(?=no\s)|\s+(?=without\s)",
    re.I,
)
# A message of more sentences than these is not a row of orders.
_SENTENCES = 8
# Parts of one sentence that are put together in every way; more are read as they come.
_MOST = 8


def sentences(text: str) -> list[str]:
    """A message's parts between full stops, line breaks and `then`; questions keep their mark."""
    found, begin = [], 0
    for match in _STRONG.finditer(text):
        mark = "?" if "?" in match[0] else ""
        found.append(text[begin : match.start()].strip() + mark)
        begin = match.end()
    found.append(text[begin:].strip())
    return [part for part in found if re.search(r"\w|\?", part)][:_SENTENCES]


def wishes_in(sentence: str, understand: Understand) -> tuple[Wish, ...]:
    """The wishes of one sentence: of as many parts as can be told apart, in their order."""
    parts, joints = _parted(sentence)
    if len(parts) > _MOST:
        return understand(sentence)
    return _best(parts, joints, understand) or ()


def parts(sentence: str) -> list[str]:
    """All that could stand alone in a sentence."""
    return _parted(sentence)[0]


def _best(parts: list[str], joints: list[str], understand: Understand) -> tuple[Wish, ...] | None:
    """The finest way to part the sentence in which every part is understood; None if none is."""
    known: list[tuple[int, tuple[Wish, ...]] | None] = [(0, ())]
    for end in range(1, len(parts) + 1):
        best: tuple[int, tuple[Wish, ...]] | None = None
        for begin in range(end):
            before = known[begin]
            if before is None or (best and before[0] + 1 < best[0]):
                continue
            found = understand(_joined(parts, joints, begin, end))
            if found and (best is None or before[0] + 1 > best[0]):
                best = (before[0] + 1, before[1] + found)
        known.append(best)
    last = known[-1]
    return last[1] if last else None


def _parted(sentence: str) -> tuple[list[str], list[str]]:
    joints = [match[0] for match in _WEAK.finditer(sentence)]
    return [part.strip() for part in _WEAK.split(sentence)], joints


def _joined(parts: list[str], joints: list[str], begin: int, end: int) -> str:
    text = parts[begin]
    for place in range(begin + 1, end):
        text += joints[place - 1] + parts[place]
    return text.strip(" ,")
