"""The assistant: what it hears, what is answered to a person, and the Protocol of its minds.

An answer is made of pieces (words, code, tables, pictures, downloads) and offers, which become
buttons; how they look is the UI's business.
"""

from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from kernelwright.agents.assistant.types.commands import Command
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


class Offer(Value):
    """A button: what it says, and the wish behind it."""

    label: str
    wish: Command
    hint: str = ""


class ChatReply(Value):
    """One answer. A `question` waits for one of its offers, or for words instead."""

    pieces: tuple[Piece, ...]
    offers: tuple[Offer, ...] = ()
    question: bool = False

    @classmethod
    def of(cls, text: str, *offers: Offer) -> "ChatReply":
        """An answer in words alone."""
        return cls(pieces=(Words(text=text),), offers=offers)

    @property
    def text(self) -> str:
        """Its words, for those that cannot show more."""
        return "\n\n".join(piece.text for piece in self.pieces if isinstance(piece, Words))


class Attachment(Value):
    """A text file that came with a message."""

    name: str
    text: str


class Turn(Value):
    """What the person said, and what it may be about.

    `candidates` are ids in the order of writing (so `v3` is the third), `ideas` titles in the
    order of proposal; `earlier` are the last exchanges, the person's words first. `offers` are the
    buttons of a question that is open: the person may answer it in words.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    task: str = ""
    run: str = ""
    running: bool = False
    candidates: tuple[str, ...] = ()
    ideas: tuple[str, ...] = ()
    earlier: tuple[tuple[str, str], ...] = ()
    offers: tuple[Offer, ...] = ()


class Understanding(Value):
    """What the person wants, in order; `words` are said before anything is done."""

    wishes: tuple[Command, ...]
    words: str = ""


class CommandResult(Value):
    """A wish with what was answered."""

    wish: Command
    saying: ChatReply


class Assistant(Protocol):
    """Understands a person."""

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        """Say what is to be done next for this turn; no wishes means that it is answered.

        `done` is what was done for the same turn already: rules ask once, a model may look at
        the answers and go on.
        """
        ...
