"""Makes a model's words harmless to show: no HTML, no pictures, no links to follow unseen.

A page shows them as Markdown, and a picture in it would be fetched from wherever it says.
"""

import re

_PICTURE = re.compile(r"!\[([^\]\n]*)\](?:\([^)\n]*\)|\[[^\]\n]*\])?")
_LINK = re.compile(r"\[([^\]\n]+)\](?:\(([^)\s]*)[^)\n]*\)|\[[^\]\n]*\])")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:.*$", re.MULTILINE)
_ADDRESS = re.compile(r"<?\b((?:https?|ftp|file|data|javascript):[^\s>)`\]]+)>?", re.IGNORECASE)
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
LONGEST = 8_000


def sanitize_markdown(text: str) -> str:
    """The same words; what stands as code stays as it is, as code is never anything else."""
    parts = _CODE.split(text[:LONGEST])
    return "".join(part if place % 2 else _tamed(part) for place, part in enumerate(parts)).strip()


def _tamed(text: str) -> str:
    text = _DEFINITION.sub("", _PICTURE.sub(r"\1", text))
    text = _LINK.sub(r"\1", text)
    text = _ADDRESS.sub(r"`\1`", text)
    return _TAG.sub("&lt;", text)
