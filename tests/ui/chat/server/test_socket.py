"""The chat from end to end, over the socket that a page speaks."""

import asyncio
import subprocess
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import socketio


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def locked(driver, flags, tmp_path_factory):
    """A server to which anna and bert may log in."""
    home = tmp_path_factory.mktemp("locked") / "home"
    for name in ("anna", "bert"):
        await asyncio.to_thread(add, driver, home, name)
    async with driver.Server(home, *flags) as running:
        yield running


def add(driver, home: Path, name: str) -> None:
    command = [*driver.COMMAND, "user", "add", name, "--run-dir", str(home)]
    subprocess.run(command, input=driver.PASSWORD + "\n", text=True, check=True, cwd=driver.ROOT)


async def test_a_file_becomes_a_card_a_search_and_a_result(server, visit, small):
    anna = await visit(server.url)
    await anna.say("make this faster", small)
    await anna.press("^go$", 240)
    await anna.read("SmallSoftmax")
    await anna.press("^stop", 240)
    await anna.read("stopped", 120)
    thread = anna.thread
    await anna.leave()

    again = await visit(server.url, thread=thread)
    await again.read("make this faster")
    await again.read("SmallSoftmax")


async def test_pasted_code_is_as_good_as_a_file(server, visit, small):
    anna = await visit(server.url)
    await anna.say(f"faster please\n```python\n{small.read_text()}\n```")
    await anna.press("^cancel$", 240)
    await anna.read("SmallSoftmax")


async def test_what_nobody_understands_is_answered_with_buttons(server, visit, driver):
    anna = await visit(server.url)
    await anna.say("colourless elephants sleep furiously")
    await driver.until(lambda: anna.button(".") is not None, 60, anna.told)


async def test_conversations_and_files_survive_a_killed_server(mortal, visit, small):
    anna = await visit(mortal.url)
    await anna.say("what can you do?", small)
    await anna.press("^cancel$", 240)
    await anna.read(r"small.{1,2}softmax.py")
    await mortal.kill()
    await mortal.start()
    again = await visit(mortal.url, thread=anna.thread)
    await again.read("what can you do")
    file = next(e for e in again.elements.values() if e["name"] == "small_softmax.py")
    answer = await again.http.get(str(file["url"]))
    assert answer.text == small.read_text()


async def test_nobody_comes_in_without_a_password(locked, visit, driver):
    async with httpx.AsyncClient(base_url=locked.url) as client:
        assert (await client.get("/project/settings")).status_code == 401
        assert (await client.post("/auth/header")).status_code == 400
        form = {"username": "anna", "password": "wrong horse battery"}
        assert (await client.post("/login", data=form)).status_code == 401
    visitor = driver.Visitor(locked.url, "anna")
    with pytest.raises(socketio.exceptions.ConnectionError):
        await visitor.open()
    await visitor.http.aclose()


async def test_one_person_never_sees_anothers_conversation(locked, visit, driver, small):
    anna = await visit(locked.url, "anna")
    await anna.say("what can you do?", small)
    await anna.press("^cancel$", 240)
    assert anna.thread
    file = next(iter(anna.elements.values()))

    bert = await visit(locked.url, "bert")
    listed = await bert.http.post(
        "/project/threads", json={"pagination": {"first": 20}, "filter": {}}
    )
    assert listed.json()["data"] == []
    assert (await bert.http.get(f"/project/thread/{anna.thread}")).status_code == 401
    assert (await bert.http.get(f"/files/{anna.thread}/{file['id']}")).status_code == 404
    for body in ({"threadId": anna.thread, "name": "mine"}, {"threadId": "nowhere", "name": "x"}):
        assert (await bert.http.put("/project/thread", json=body)).status_code == 401
    stranger = driver.Visitor(locked.url, "bert")
    await stranger.enter()
    with pytest.raises(socketio.exceptions.ConnectionError):
        await stranger.open(anna.thread)
    await stranger.http.aclose()


async def test_what_is_no_small_source_is_not_taken(server, visit):
    anna = await visit(server.url)
    for name, kind, content in (
        ("page.html", "text/html", b"<script>"),
        ("page.py", "text/html", b"<script>"),
        ("tool.exe", "application/octet-stream", b"MZ"),
        ("large.py", "text/x-python", b"#" * 1_100_000),
        ("huge.py", "text/x-python", b"#" * 3_000_000),
    ):
        answer = await anna.http.post(
            "/project/file",
            params={"session_id": anna.session},
            files={"file": (name, content, kind)},
        )
        assert answer.status_code in (400, 413), name


async def test_another_pages_socket_is_not_opened(server, visit):
    anna = await visit(server.url)
    cookies = "; ".join(f"{name}={value}" for name, value in anna.http.cookies.items())
    for headers in (
        {"Cookie": cookies, "Origin": "http://evil.example"},
        {"Cookie": cookies, "Host": "evil.example"},
    ):
        stranger = socketio.AsyncClient(reconnection=False)
        with pytest.raises(socketio.exceptions.ConnectionError):
            await stranger.connect(
                server.url,
                headers=headers,
                socketio_path="/ws/socket.io",
                transports=["websocket"],
                auth={"clientType": "webapp", "sessionId": "s", "threadId": "", "userEnv": "{}"},
            )


async def test_a_second_server_of_one_home_says_so(server, driver, flags):
    second = driver.Server(server.home, *flags)
    second.log = server.home / "second.log"
    with pytest.raises(RuntimeError, match="another chat is served from"):
        await second.start()
