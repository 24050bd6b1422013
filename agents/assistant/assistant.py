"""Who understands a person: one Protocol, with rules or a language model behind it."""

from typing import Protocol

from agents.assistant.sayings import Offer, Saying
from agents.assistant.wishes import Wish
from tools.nouns import Value


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

    wishes: tuple[Wish, ...]
    words: str = ""


class Deed(Value):
    """A wish with what was answered."""

    wish: Wish
    saying: Saying


class Assistant(Protocol):
    """Understands a person."""

    async def understand(self, turn: Turn, done: tuple[Deed, ...] = ()) -> Understanding:
        """Say what is to be done next for this turn; no wishes means that it is answered.

        `done` is what was done for the same turn already: rules ask once, a model may look at
        the answers and go on.
        """
        ...
