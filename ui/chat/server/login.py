"""Coming in: by password where people were added, and without one on this machine alone.

Guessing is slow: few passwords are looked at side by side, and a wrong one is answered late. Who
was removed, or has a new password, is out at once, whatever their cookie says.
"""

import asyncio
from pathlib import Path

import jwt
from chainlit.auth import get_token_from_cookies
from chainlit.auth.jwt import get_jwt_secret
from chainlit.config import config
from chainlit.user import User
from starlette.datastructures import Headers

from kernelwright.ui.chat.server.people import People, Person

# Whoever sits at this machine, where nobody was added.
LOCAL = "local"

SIDE_BY_SIDE = 4
AFTER_A_WRONG_ONE_S = 1.0


class Login:
    """Lets people in, as the file of people says at this moment."""

    def __init__(self, folder: Path) -> None:
        self.people = People(folder)
        self.open = not self.people.all()
        self._at_once = asyncio.Semaphore(SIDE_BY_SIDE)
        self._read: tuple[float, dict[str, Person]] = (-1.0, {})

    def attend(self) -> None:
        """Tell Chainlit who comes in."""
        if self.open:
            config.code.header_auth_callback = self._whoever
        else:
            config.code.password_auth_callback = self._by_password

    async def _whoever(self, _: Headers) -> User | None:
        return User(identifier=LOCAL, display_name="You")

    async def _by_password(self, name: str, password: str) -> User | None:
        async with self._at_once:
            if await asyncio.to_thread(self.people.knows, name, password):
                return User(identifier=name)
            await asyncio.sleep(AFTER_A_WRONG_ONE_S)
            return None

    def admits(self, cookies: dict[str, str]) -> bool:
        """Whether a cookie is that of somebody who may still be in."""
        try:
            said = jwt.decode(
                get_token_from_cookies(cookies) or "", get_jwt_secret() or "", algorithms=["HS256"]
            )
        except jwt.InvalidTokenError:
            return False
        if self.open:
            return bool(said["identifier"] == LOCAL)
        person = self._now().get(said["identifier"])
        return person is not None and said["iat"] >= int(person.since)

    def _now(self) -> dict[str, Person]:
        """The people, read again when their file changed."""
        try:
            changed = float(self.people.path.stat().st_mtime_ns)
        except FileNotFoundError:
            changed = 0.0
        if self._read[0] != changed:
            self._read = (changed, self.people.all())
        return self._read[1]
