"""What stands before Chainlit: whom it answers, what it accepts, and what its page may load.

The page's policy names only this server, so that nothing comes from elsewhere and no script runs
but its own, whatever a person uploads. Doors of Chainlit's that nobody here needs are shut: shared
threads, elements that a page may write, feedback, outside tools, the embedded copilot.

Whoever may be in no longer is out at once: no message of an open socket passes in either direction,
no answer that was under way, and an open page is told to load itself again, which asks to log in.
"""

import asyncio
import base64
import contextlib
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

from kernelwright.ui.chat.server.config import LARGEST_FILE_MB
from kernelwright.ui.chat.settings import LOOPBACK

LARGEST_BODY_BYTES = 2_000_000
# Of whoever may be in: a file, and what a form adds to it.
LARGEST_UPLOAD_BYTES = LARGEST_FILE_MB * 2**20 + 100_000
UPLOAD = "/project/file"

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
KEPT, UPLOADED = "/files/", UPLOAD + "/"
INERT = "default-src 'none'; sandbox"
SOCKET = "/ws/"
OUT = (401, "You are not logged in.")
# Of an idle socket; one that says or hears something is closed then.
OUT_WITHIN_S = 0.25
OUT_OF_PLACE = 1008
# Socket.IO's way to send Chainlit's page the event that makes it load itself again.
RELOAD = '42["reload"]'

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
        cookies = _cookies(headers)
        if not self.admits(cookies):
            if _goes_on(scope):
                await _refuse(scope, receive, send, *OUT)
                return
            scope = _without_cookies(scope)
            receive = _bounded(receive, LARGEST_BODY_BYTES)
            await self.app(scope, receive, self._guarded(scope["path"], send))
        elif scope["type"] == "websocket":
            async with _Socket(receive, send, lambda: self.admits(cookies)) as socket:
                await self.app(scope, socket.receive, socket.send)
        else:
            watched = self._watched(cookies, scope, receive, send)
            receive = _bounded(receive, _largest(scope))
            await self.app(scope, receive, self._guarded(scope["path"], watched))

    def _watched(self, cookies: dict[str, str], scope: Scope, receive: Receive, send: Send) -> Send:
        """Answers only whoever may be in still when the answer is there."""
        out = False

        async def watched(message: Message) -> None:
            nonlocal out
            if message["type"] == "http.response.start" and not self.admits(cookies):
                out = True
                await _refuse(scope, receive, send, *OUT)
            if not out:
                await send(message)

        return watched

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
        if int(headers.get("content-length") or 0) > _largest(scope):
            return 413, "This is too large."
        return None

    def _guarded(self, path: str, send: Send) -> Send:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._guard(path, MutableHeaders(scope=message))
            await send(message)

        return guarded

    def _guard(self, path: str, headers: MutableHeaders) -> None:
        brought = path.startswith((KEPT, UPLOADED))
        headers["Content-Security-Policy"] = INERT if brought else self.policy
        if path.startswith(UPLOADED):  # of whatever kind its sender said; kept ones say their own
            headers["Content-Disposition"] = "attachment"
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


def _largest(scope: Scope) -> int:
    """How many bytes the body of a request may have."""
    return LARGEST_UPLOAD_BYTES if scope["path"] == UPLOAD else LARGEST_BODY_BYTES


def _bounded(receive: Receive, largest: int) -> Receive:
    """Stop reading a body that says nothing of its length and has no end."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > largest:
                return {"type": "http.disconnect"}
        return message

    return bounded


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, words: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(words, status)(scope, receive, send)


class _Socket:
    """An open socket, as long as whoever opened it may be in."""

    def __init__(self, receive: Receive, send: Send, may: Callable[[], bool]) -> None:
        self._receive, self._send, self._may = receive, send, may
        self._coming: asyncio.Future[Message] | None = None
        self._accepted = self._shut = False

    async def __aenter__(self) -> "_Socket":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._coming is not None:
            self._coming.cancel()

    async def receive(self) -> Message:
        """The next message; the end of the connection where nobody may send one any more."""
        while self._may():
            coming = self._coming = self._coming or asyncio.ensure_future(self._receive())
            if not (await asyncio.wait({coming}, timeout=OUT_WITHIN_S))[0]:
                continue
            if self._may():
                self._coming = None
                return coming.result()
        await self._end()
        return {"type": "websocket.disconnect", "code": OUT_OF_PLACE}

    async def send(self, message: Message) -> None:
        """Send a message to whoever may still read it."""
        if self._shut:
            return
        if not self._may():
            await self._end()
            return
        self._accepted = self._accepted or message["type"] == "websocket.accept"
        await self._send(message)

    async def _end(self) -> None:
        if self._shut:
            return
        self._shut = True
        with contextlib.suppress(OSError, RuntimeError):  # it may have gone by itself
            if self._accepted:
                await self._send({"type": "websocket.send", "text": RELOAD})
            await self._send({"type": "websocket.close", "code": OUT_OF_PLACE})


def _goes_on(scope: Scope) -> bool:
    """Whether a request speaks in a connection that it names, which needs no cookie for that."""
    return bool(scope["path"].startswith(SOCKET)) and b"sid=" in scope["query_string"]


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
