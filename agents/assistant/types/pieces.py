"""What a reply is made of: words, code, tables, pictures and downloads.

How they look is the UI's business; see `agents.assistant.types` for the reply around them.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kernelwright.tools.types import Value


class Words(Value):
    """A paragraph or a list, as Markdown."""

    kind: Literal["words"] = "words"
    text: str


class Code(Value):
    """Source, a difference (`language="diff"`) or a message, with highlighting."""

    kind: Literal["code"] = "code"
    title: str
    text: str
    language: str = "text"


class Table(Value):
    """Rows under columns; every cell is plain text."""

    kind: Literal["table"] = "table"
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Picture(Value):
    """A drawing of a run: how the search went, or where candidates stand under the roofline."""

    kind: Literal["picture"] = "picture"
    what: Literal["trajectory", "roofline"]
    run: str


class Download(Value):
    """A file to take home."""

    kind: Literal["download"] = "download"
    path: Path
    name: str
    mime: str = "application/octet-stream"


Piece = Annotated[Words | Code | Table | Picture | Download, Field(discriminator="kind")]
