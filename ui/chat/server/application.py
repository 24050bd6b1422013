"""Chainlit's application with our store, our login and our gate around it, and the kept files.

People come in by password where some were added, and without one on this machine alone. The file of
people is looked at anew for every request and every message of an open socket. Who was removed, has
a new password, or came without one before somebody was added, is out at once, whatever their cookie
says. Guessing is slow: few passwords are looked at side by side, and a wrong one is answered late.
"""

import asyncio
import contextlib
import re
import warnings
from pathlib import Path
from typing import Annotated, Literal, cast

import jwt
from chainlit.auth import get_current_user, get_token_from_cookies
from chainlit.auth.jwt import get_jwt_secret
from chainlit.config import config
from chainlit.server import app as chainlit_app
from chainlit.server import get_html_template
from chainlit.user import PersistedUser, User
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp

from kernelwright.ui.chat.server.gate import Gate, Uploads
from kernelwright.ui.chat.server.people import People, Person
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.chat.store.layer import Store
from kernelwright.ui.chat.store.records import ADDRESS
from kernelwright.ui.complaints import LACKING, Complaint

# Whoever sits at this machine, where nobody was added.
LOCAL = "local"
# Where a cookie keeps since when its password has held.
SINCE = "since"

SIDE_BY_SIDE = 4
AFTER_A_WRONG_ONE_S = 1.0


class Login:
    """Lets people in, as the file of people says at this moment."""

    def __init__(self, folder: Path, loopback: bool = True) -> None:
        self.people = People(folder)
        self._loopback = loopback
        self._at_once = asyncio.Semaphore(SIDE_BY_SIDE)
        self._read: tuple[tuple[int, ...], dict[str, Person]] = ((-1,), {})

    @property
    def open(self) -> bool:
        """Whether nobody needs a password: nobody was added, and only this machine gets here."""
        return self._loopback and not self._now()

    def attend(self) -> None:
        """Tell Chainlit who comes in at this moment."""
        now_open = self.open
        config.code.header_auth_callback = self._whoever if now_open else None
        config.code.password_auth_callback = None if now_open else self._by_password

    async def _whoever(self, _: Headers) -> User | None:
        return User(identifier=LOCAL, display_name="You") if self.open else None

    async def _by_password(self, name: str, password: str) -> User | None:
        async with self._at_once:
            person = await asyncio.to_thread(self.people.knows, name, password)
            if person is not None:
                return User(identifier=name, metadata={SINCE: person.since})
            await asyncio.sleep(AFTER_A_WRONG_ONE_S)
            return None

    def admits(self, cookies: dict[str, str]) -> bool:
        """Whether a cookie is that of somebody who may still be in; tells Chainlit who may."""
        self.attend()
        try:
            said = jwt.decode(
                get_token_from_cookies(cookies) or "", get_jwt_secret() or "", algorithms=["HS256"]
            )
        except jwt.InvalidTokenError:
            return False
        if self.open:
            return bool(said["identifier"] == LOCAL)
        person = self._now().get(said["identifier"])
        # By the very password: a time of issue in whole seconds cannot tell the last one's cookie.
        return person is not None and said["metadata"].get(SINCE) == person.since

    def _now(self) -> dict[str, Person]:
        """The people, read again when their file changed."""
        changed: tuple[int, ...] = ()
        with contextlib.suppress(FileNotFoundError):
            told = self.people.path.stat()
            changed = (told.st_mtime_ns, told.st_ino, told.st_size)
        if self._read[0] != changed:
            self._read = (changed, self.people.all())
        return self._read[1]


def build_app(settings: ChatSettings) -> ASGIApp:
    """Make what a server runs.

    Raises:
        Complaint: The database cannot be opened.
    """
    store, login = open_store(settings), Login(settings.folder, settings.loopback)
    config.code.data_layer = lambda: store
    login.attend()
    config.run.host, config.run.port = settings.host, settings.port
    config.run.headless = settings.headless
    _follow_the_system()
    serve_files(chainlit_app, store)
    return Gate(Uploads(chainlit_app), login.admits, settings.host, lambda: get_html_template(""))


def open_store(settings: ChatSettings) -> Store:
    """Open the conversations.

    Raises:
        Complaint: The database cannot be opened, said without the address, which holds a password.
    """
    try:
        return Store(settings)
    except ModuleNotFoundError as error:
        raise Complaint(
            f"this database needs {error.name}: pip install 'kernelwright[postgres]'", LACKING
        ) from None
    except SQLAlchemyError as error:
        words = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise Complaint(f"cannot open the database: {words}", LACKING) from None


def _follow_the_system() -> None:
    """Light or dark as the person's system is; the page knows this, Chainlit's types do not."""
    config.ui.default_theme = cast("Literal['light']", "system")
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)


# What the page draws itself; all else is saved rather than opened.
DRAWN = ("image/png", "application/json")

Whoever = Annotated[User | PersistedUser | None, Depends(get_current_user)]


def serve_files(app: FastAPI, store: Store) -> None:
    """Add the address of kept files, before the page that answers everything else."""

    @app.get(ADDRESS + "/{thread_id}/{element_id}", response_model=None)
    async def kept_file(thread_id: str, element_id: str, person: Whoever) -> FileResponse:
        owner = await store.get_thread_author(thread_id)
        if person is None or person.identifier != owner:
            raise HTTPException(404, "There is no such file.")
        element = await store.get_element(thread_id, element_id)
        path = store.files.path(thread_id, element_id)
        if element is None or not path.is_file():
            raise HTTPException(404, "There is no such file.")
        mime = element.get("mime") or "application/octet-stream"
        drawn = mime in DRAWN
        return FileResponse(
            path,
            media_type=mime if drawn or mime == "application/zip" else "application/octet-stream",
            filename=None if drawn else saved_as(element["name"]),
        )

    route = app.router.routes.pop()
    assert isinstance(route, Route)
    app.router.routes.insert(0, route)


def saved_as(name: str) -> str:
    """A file's name without anything that a header or a disk would mind."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "file"
