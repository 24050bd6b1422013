"""Lets a file wait for the conversation that it is attached to.

A page can be written to before its connection stands; Chainlit answers a file that comes then with
"Session not found", and the message that follows goes on its way without it. So such a file waits.
"""

import asyncio
import time
from urllib.parse import parse_qs

from chainlit.session import WebsocketSession
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

UPLOAD = "/project/file"
PATIENCE_S = 30.0
LOOK_S = 0.05


class Uploads:
    """Passes everything on, and a file once its session is there or `patience_s` are over."""

    def __init__(self, app: ASGIApp, patience_s: float = PATIENCE_S) -> None:
        self.app, self.patience_s = app, patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or open one socket."""
        if _is_upload(scope):
            await _session(scope, self.patience_s)
        await self.app(scope, receive, send)


def _is_upload(scope: Scope) -> bool:
    # Whom nobody admitted has no cookie left, and is refused without a wait.
    called = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == UPLOAD
    return called and "cookie" in Headers(scope=scope)


async def _session(scope: Scope, patience_s: float) -> None:
    """Wait until the session that a request names has connected."""
    named = parse_qs(scope["query_string"].decode(errors="replace")).get("session_id", [""])[0]
    ends = time.monotonic() + patience_s
    while WebsocketSession.get_by_id(named) is None:
        if time.monotonic() >= ends:
            return
        await asyncio.sleep(LOOK_S)
