"""What the chat was started with; one value a server, set before Chainlit is imported."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from kernelwright.profiles.load import Models
from kernelwright.tools.runtime import home as default_home
from kernelwright.tools.types import Value

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ChatSettings(Value):
    """Where the server listens, where it keeps things, and how its searches are made.

    `home` holds everything: the conversations in `chat`, people's runs in `people`. An empty
    `database` means SQLite there. `ready` workers wait for files. A file that does nothing for
    `load_seconds` is given up. `models` of None is the playbook.
    """

    home: Path = Field(default_factory=default_home)
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    headless: bool = False
    database: str = ""
    target: Literal["auto", "cuda", "cpu"] = "auto"
    search: str = "quick"
    ready: int = Field(default=4, ge=0)
    load_seconds: float = Field(default=60.0, ge=1)
    models: Models | None = None

    @property
    def folder(self) -> Path:
        """Where the chat's own files are: conversations, attachments, people, the page."""
        return self.home / "chat"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK


class _Current:
    """The settings in force; a server has one, a test sets its own."""

    settings: ChatSettings | None = None


def use(settings: ChatSettings) -> None:
    """Put settings in force."""
    _Current.settings = settings


def current() -> ChatSettings:
    """The settings in force; those of a bare `kernelwright chat` when none were set."""
    if _Current.settings is None:
        _Current.settings = ChatSettings()
    return _Current.settings
