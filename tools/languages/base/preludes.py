"""The headers of ours that kernels include, shared by the languages of C's family."""

from functools import cache
from pathlib import Path

INCLUDE = Path(__file__).with_name("include")


@cache
def headers_digest() -> str:
    """The text of our preludes; a changed header makes every cached object stale."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.iterdir()))
