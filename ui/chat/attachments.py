"""Files that came with a message, as texts. They are never run here, only read."""

from pathlib import Path

from chainlit.message import Message

from agents.assistant.types.chat import Attachment

# The server takes no larger ones; this is for those who use another way in.
LARGEST_BYTES = 1_000_000


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """The message's files; what is no text becomes one with signs that say so."""
    found = []
    for element in message.elements:
        if element.path:
            content = Path(element.path).read_bytes()[:LARGEST_BYTES]
            found.append(Attachment(name=element.name, text=content.decode(errors="replace")))
    return tuple(found)
