"""A file waits for the session that it is for, and nothing else waits."""

import asyncio
import time

from chainlit.session import ws_sessions_id

from kernelwright.ui.chat.server import gate as server_uploads
from kernelwright.ui.chat.server.gate import Uploads

COOKIE = (b"cookie", b"access_token=1")


def upload(**other: object) -> dict[str, object]:
    """What a page asks when a file is attached."""
    asked = {
        "type": "http",
        "method": "POST",
        "path": server_uploads.UPLOAD,
        "query_string": b"session_id=abc&",
        "headers": [COOKIE],
    }
    return {**asked, **other}


async def waited_s(scope: dict[str, object], patience_s: float) -> float:
    """How long this took to be passed on, which it must be."""
    passed: list[object] = []

    async def app(scope: object, receive: object, send: object) -> None:
        passed.append(scope)

    began = time.monotonic()
    await Uploads(app, patience_s)(scope, None, None)
    assert passed == [scope]
    return time.monotonic() - began


async def test_a_file_waits_until_its_session_is_there(monkeypatch):
    asked = asyncio.create_task(waited_s(upload(), 60))
    await asyncio.sleep(0.3)
    assert not asked.done()
    monkeypatch.setitem(ws_sessions_id, "abc", object())
    assert 0.3 <= await asked < 30


async def test_a_file_without_a_session_is_passed_on_in_the_end():
    assert 0.2 <= await waited_s(upload(), 0.2) < 30


async def test_nothing_else_waits():
    for other in (
        upload(path="/project/file/1"),
        upload(method="GET"),
        upload(type="websocket"),
        upload(headers=[]),
    ):
        assert await waited_s(other, 60) < 30
