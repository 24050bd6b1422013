"""Kept files, for those whose conversation they belong to and for nobody else."""

import re
from typing import Annotated

from chainlit.auth import get_current_user
from chainlit.user import PersistedUser, User
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse
from starlette.routing import Route

from ui.chat.store import Store
from ui.chat.store_files import ADDRESS

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
