"""Who may come in: names with hashed passwords, in one file that only its owner can read.

Nothing of a password is kept but its scrypt hash with a salt of its own. Nobody in the file means
that nobody has to log in, which the server allows on this machine alone. What files of several
people lack here to be run apart is said by `lacks`.

Imports nothing of Chainlit: the secret must be there before that is imported.
"""

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from pydantic import TypeAdapter

from kernelwright.tools.types import Value
from kernelwright.ui.chat.settings import ChatSettings

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
SHORTEST = 8

# About 50 ms and 16 MiB a guess.
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1


class PersonError(ValueError):
    """A name or a password that cannot be; its text is for a person."""


class Person(Value):
    """Somebody who may come in; `since` changes with the password, in seconds since 1970."""

    name: str
    salt: str
    hashed: str
    since: float


_PEOPLE: TypeAdapter[dict[str, Person]] = TypeAdapter(dict[str, Person])


class People:
    """Those who may come in, as one file says."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "people.json"

    def all(self) -> dict[str, Person]:
        """Everybody, by name."""
        try:
            return _PEOPLE.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return {}

    def add(self, name: str, password: str, now: float) -> None:
        """Let somebody in, or change their password.

        Raises:
            PersonError: The name or the password cannot be.
        """
        if not NAME.fullmatch(name):
            raise PersonError(
                f"{name!r} cannot be a name: up to 32 of a-z, 0-9, _ and -, beginning with a "
                "letter or a digit"
            )
        if len(password) < SHORTEST:
            raise PersonError(f"a password has at least {SHORTEST} characters")
        salt = secrets.token_hex(16)
        person = Person(name=name, salt=salt, hashed=_hash(password, salt), since=now)
        self._write(self.all() | {name: person})

    def remove(self, name: str) -> None:
        """Let somebody in no longer; what is theirs stays.

        Raises:
            PersonError: There is nobody of that name.
        """
        people = self.all()
        if people.pop(name, None) is None:
            raise PersonError(f"there is nobody called {name!r}")
        self._write(people)

    def knows(self, name: str, password: str) -> Person | None:
        """Whose name and password these are; takes as long for a name that is not here."""
        person = self.all().get(name)
        salt, hashed = (person.salt, person.hashed) if person else ("00" * 16, "")
        return person if hmac.compare_digest(_hash(password, salt), hashed) else None

    def _write(self, people: dict[str, Person]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"people.{os.getpid()}.new")
        write_private(fresh, _PEOPLE.dump_json(people, indent=1))
        fresh.replace(self.path)


def secret(folder: Path) -> str:
    """What signs this server's cookies; made at the first start, and kept."""
    path = folder / "secret"
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        write_private(path, secrets.token_hex(32).encode())
        return path.read_text(encoding="ascii")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _hash(password: str, salt: str) -> str:
    raw = hashlib.scrypt(
        password.encode(), salt=bytes.fromhex(salt), n=_COST, r=_BLOCK, p=_PARALLEL
    )
    return raw.hex()


def lacks(settings: ChatSettings) -> str:
    """What files of several people lack here to be run apart, in a sentence; "" for nothing."""
    if settings.loopback and not People(settings.folder).all():
        return ""
    from kernelwright.tools.evaluate.sandbox.walls import bubblewrap_lacks
    from kernelwright.tools.hardware import detect

    words = bubblewrap_lacks(detect(settings.target).kind)
    return f"a chat for several people runs their files behind bubblewrap, {words}" if words else ""
