"""Chainlit's application with our store, our door and our gate around it."""

import warnings
from typing import Literal, cast

from chainlit.config import config
from chainlit.server import app as chainlit_app
from chainlit.server import get_html_template
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp

from ui.chat.login import Door
from ui.chat.server_files import serve_files
from ui.chat.server_gate import Gate
from ui.chat.server_uploads import Uploads
from ui.chat.settings import ChatSettings
from ui.chat.store import Store
from ui.complaints import LACKING, Complaint


def build_app(settings: ChatSettings) -> ASGIApp:
    """Make what a server runs.

    Raises:
        Complaint: The database cannot be opened.
    """
    store, door = open_store(settings), Door(settings.folder)
    config.code.data_layer = lambda: store
    door.attend()
    config.run.host, config.run.port = settings.host, settings.port
    config.run.headless = settings.headless
    _follow_the_system()
    serve_files(chainlit_app, store)
    return Gate(Uploads(chainlit_app), door.admits, settings.host, lambda: get_html_template(""))


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
