"""What Kernelwright answers in a conversation: pieces to show, and wishes offered as buttons.

Values without any notion of a page; `ui.chat` decides how each piece looks. Words are Markdown
without HTML; whatever comes from a user's file, a model or a compiler travels in `Code` or in a
table's cells, never inside words.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from agents.assistant.wishes import Wish
from tools.nouns import Value


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


class Offer(Value):
    """A button: what it says, and the wish behind it."""

    label: str
    wish: Wish
    hint: str = ""


class Saying(Value):
    """One answer. A `question` waits for one of its offers, or for words instead."""

    pieces: tuple[Piece, ...]
    offers: tuple[Offer, ...] = ()
    question: bool = False

    @classmethod
    def of(cls, text: str, *offers: Offer) -> "Saying":
        """An answer in words alone."""
        return cls(pieces=(Words(text=text),), offers=offers)

    @property
    def text(self) -> str:
        """Its words, for those that cannot show more."""
        return "\n\n".join(piece.text for piece in self.pieces if isinstance(piece, Words))
