"""What a search shows in a conversation, before it is drawn: lines with keys, without a page.

A line is a step that can be opened, or a message. Its key is made of what it tells (a round, an
idea, a candidate), so the same events always make the same lines: whatever was lost on the way is
told again, and nothing is there twice.
"""

import uuid
from datetime import UTC, datetime
from typing import Literal

from kernelwright.agents.assistant.types import Command
from kernelwright.tools.types import Value

# The space in which keys become ids.
_SPACE = uuid.UUID("8b0f5d0c-52c6-4a43-9d0e-0f6f1b1a7c11")


class Sheet(Value):
    """A drawing, a source or a list of tasks that belongs to a line; `content` is its file."""

    key: str
    name: str
    kind: Literal["plotly", "text", "tasklist"]
    content: str
    display: Literal["inline", "side"] = "inline"


class Button(Value):
    """What can be asked for with a click; `quiet` ones leave no trace in the conversation."""

    label: str
    wish: Command
    hint: str = ""
    icon: str = ""
    quiet: bool = False


class Line(Value):
    """One thing that is shown; `parent` is the key of the line it stands in."""

    key: str
    name: str
    at: datetime
    words: str = ""
    parent: str = ""
    kind: Literal["step", "message"] = "step"
    icon: str = ""
    ended_at: datetime | None = None
    failed: bool = False
    open: bool = False
    sheets: tuple[Sheet, ...] = ()
    buttons: tuple[Button, ...] = ()


def id_of(thread: str, run: str, key: str) -> str:
    """The id under which the page and the store know a line, a sheet or a button."""
    return str(uuid.uuid5(_SPACE, f"{thread}\x1f{run}\x1f{key}"))


def stamp(at: datetime) -> str:
    """A time as Chainlit writes it; always with microseconds, so that texts sort as times do."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
