"""The server of the chat: prepares Chainlit's folder, lets people in, serves until it is stopped.

One server a home: a second one would take up the first one's searches. Chainlit is imported only
after its folder and its secret are in place, for it reads both when it is imported.
"""

import asyncio
import contextlib
import fcntl
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from kernelwright.ui.chat.server.config import write_root
from kernelwright.ui.chat.server.memory import imports_out_of_sight, swept
from kernelwright.ui.chat.server.people import People, lacks, secret
from kernelwright.ui.chat.settings import ChatSettings, use
from kernelwright.ui.complaints import LACKING, Complaint

# Other ways into Chainlit, which somebody's shell may have set for another program.
ELSEWHERES = ("CHAINLIT_", "SLACK_", "TEAMS_", "DISCORD_", "OAUTH_", "LITERAL_")
GRACE_S = 5
# Held by the server of a home, and holding its address.
LOCK = "server.lock"


def serve(settings: ChatSettings) -> None:
    """Serve the chat until somebody ends it.

    Raises:
        Complaint: The address is taken or not this machine's, another server has this home,
            nobody was added who could log in from elsewhere, or their files cannot be kept apart.
    """
    _check_people(settings)
    if words := lacks(settings):
        raise Complaint(words, LACKING)
    with _only_one(settings.folder) as lock, _listening(settings) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        lock.truncate(0)
        lock.write(address(settings))
        lock.flush()
        use(settings)
        _prepare(settings)
        asyncio.run(_run(settings, listener))


def address(settings: ChatSettings) -> str:
    """What to type into a browser."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _check_people(settings: ChatSettings) -> None:
    if not settings.loopback and not People(settings.folder).all():
        raise Complaint(
            f"{settings.host} can be reached from elsewhere, so people must log in: "
            "add somebody with kernelwright user add NAME"
        )


def running(folder: Path) -> str | None:
    """The address of the chat that is served from a folder now; None where there is none."""
    try:
        with (folder / LOCK).open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return lock.read()
    except FileNotFoundError:
        pass
    return None


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[TextIO]:
    """Hold the home; the system lets go of it however this process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise Complaint(f"cannot write {folder}: {error.strerror}", LACKING) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Complaint(
                f"another chat is served from {folder.parent}: end it, or give this one its own "
                "--run-dir",
                LACKING,
            ) from None
        yield lock


@contextlib.contextmanager
def _listening(settings: ChatSettings) -> Iterator[socket.socket]:
    """Take the address, so that whatever is wrong with it is said before anything starts."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise Complaint(
                f"cannot listen at {address(settings)}: {error.strerror}; give another --port",
                LACKING,
            ) from None
        yield listener


def _prepare(settings: ChatSettings) -> None:
    """Put in place what Chainlit reads when it is imported."""
    for name in [name for name in os.environ if name.startswith(ELSEWHERES)]:
        del os.environ[name]
    try:
        os.environ["CHAINLIT_APP_ROOT"] = str(write_root(settings))
        os.environ["CHAINLIT_AUTH_SECRET"] = secret(settings.folder)
        os.environ["TRACELOOP_TELEMETRY"] = "false"  # which Chainlit brings along
    except OSError as error:
        raise Complaint(f"cannot write {error.filename}: {error.strerror}", LACKING) from None


async def _run(settings: ChatSettings, listener: socket.socket) -> None:
    with imports_out_of_sight():
        import uvicorn

        from kernelwright.graphs.search.session import import_beforehand
        from kernelwright.ui.chat.server.application import build_app
        from kernelwright.ui.chat.server.memory import felt
        from kernelwright.ui.chat.server.state import quiet

        app = build_app(settings)
        importlib.import_module("kernelwright.ui.chat.server.app")  # its hooks announce themselves
        import_beforehand(settings.target, settings.models)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            # Squeezing every event costs more than it saves.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    sys.stderr.write(f"Kernelwright's chat is at {address(settings)} (Ctrl-C ends it)\n")
    async with felt(), swept(quiet):
        await server.serve(sockets=[listener])
