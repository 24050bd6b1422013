"""What stands before Chainlit: whom it answers, what it accepts, and what its page may load.

The page's policy names only this server, so that nothing comes from elsewhere and no script runs
but its own, whatever a person uploads. Doors of Chainlit's that nobody here needs are shut: shared
threads, elements that a page may write, feedback, outside tools, the embedded copilot.
"""

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from chainlit.session import WebsocketSession
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelwright.ui.chat.settings import LOOPBACK

# An attached file is at most 1 MB; the rest is what a form adds.
LARGEST_BODY_BYTES = 2_000_000

SHUT = (
    "/project/share/",
    "/project/thread/share",
    "/project/element",
    "/feedback",
    "/mcp",
    "/copilot",
    "/auth/jwt",
    "/docs",
    "/redoc",
    "/openapi.json",
)
# Content that people brought, which is shown by the page and never is one.
BROUGHT = ("/files/", "/project/file/")
INERT = "default-src 'none'; sandbox"

Admits = Callable[[dict[str, str]], bool]


class Gate:
    """Lets through what may pass."""

    def __init__(self, app: ASGIApp, admits: Admits, host: str, page: Callable[[], str]) -> None:
        self.app, self.admits = app, admits
        self.local = host in LOOPBACK
        self._page, self._policy = page, ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or open one socket."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
            return
        if not self.admits(_cookies(headers)):
            scope = _without_cookies(scope)
        await self.app(scope, _bounded(receive), self._guarded(scope["path"], send))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Why a request does not pass; None when it does."""
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self.local and name not in LOOPBACK:
            # A name elsewhere that was made to mean this machine.
            return 421, "This server answers to localhost only."
        origin = headers.get("origin")
        if origin and urlsplit(origin).netloc != host:
            return 403, "This request comes from another page."
        if scope["path"].startswith(SHUT):
            return 404, "There is nothing here."
        if int(headers.get("content-length") or 0) > LARGEST_BODY_BYTES:
            return 413, "This is too large."
        return None

    def _guarded(self, path: str, send: Send) -> Send:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._guard(path, MutableHeaders(scope=message))
            await send(message)

        return guarded

    def _guard(self, path: str, headers: MutableHeaders) -> None:
        brought = path.startswith(BROUGHT)
        headers["Content-Security-Policy"] = INERT if brought else self.policy
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["X-Frame-Options"] = "DENY"

    @property
    def policy(self) -> str:
        """What the page may load: its own, and the scripts that stand in it."""
        if not self._policy:
            own = " ".join(_digests(self._page()))
            self._policy = "; ".join(
                (
                    "default-src 'self'",
                    f"script-src 'self' {own}",
                    "style-src 'self' 'unsafe-inline'",
                    "img-src 'self' data: blob:",
                    "font-src 'self' data:",
                    "connect-src 'self'",
                    "worker-src 'self' blob:",
                    "object-src 'none'",
                    "base-uri 'none'",
                    "form-action 'self'",
                    "frame-ancestors 'none'",
                )
            )
        return self._policy


def _digests(page: str) -> list[str]:
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    hashes = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes]


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        found = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}


def _without_cookies(scope: Scope) -> Scope:
    """The same request from nobody: neither a cookie nor a token in a header."""
    kept = [pair for pair in scope["headers"] if pair[0] not in (b"cookie", b"authorization")]
    return {**scope, "headers": kept}


def _bounded(receive: Receive) -> Receive:
    """Stop reading a body that says nothing of its length and has no end."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > LARGEST_BODY_BYTES:
                return {"type": "http.disconnect"}
        return message

    return bounded


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, words: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(words, status)(scope, receive, send)


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
