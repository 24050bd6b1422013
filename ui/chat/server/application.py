"""Chainlit's application with our store, our login and our gate around it, and the kept files."""

import re
import warnings
from typing import Annotated, Literal, cast

from chainlit.auth import get_current_user
from chainlit.config import config
from chainlit.server import app as chainlit_app
from chainlit.server import get_html_template
from chainlit.user import PersistedUser, User
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.routing import Route
from starlette.types import ASGIApp

from kernelwright.ui.chat.server.gate import Gate, Uploads
from kernelwright.ui.chat.server.login import Login
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.chat.store.layer import Store
from kernelwright.ui.chat.store.records import ADDRESS
from kernelwright.ui.complaints import LACKING, Complaint


def build_app(settings: ChatSettings) -> ASGIApp:
    """Make what a server runs.

    Raises:
        Complaint: The database cannot be opened.
    """
    store, login = open_store(settings), Login(settings.folder)
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
