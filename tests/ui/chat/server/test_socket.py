"""The chat from end to end, over the socket that a page speaks."""

import asyncio
import subprocess
import zipfile
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


@pytest.fixture
def notes(tmp_path):
    """A file that is kept like any other, and that no worker has to read."""
    path = tmp_path / "kernel.cu"
    path.write_text("__global__ void nothing() {}")
    return path


def add(driver, home: Path, name: str) -> None:
    command = [*driver.COMMAND, "user", "add", name, "--run-dir", str(home)]
    subprocess.run(command, input=driver.PASSWORD + "\n", text=True, check=True, cwd=driver.ROOT)


@pytest.mark.exhaustive  # in a browser in every run
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


@pytest.mark.exhaustive
async def test_for_another_gpu_a_button_makes_a_bundle_that_can_be_worked_there(
    server, visit, driver, small, tmp_path
):
    anna = await visit(server.url)
    await anna.say("make this faster on my L40S", small)
    await anna.press("bundle for", 240)
    told = await anna.read("kernelwright work", 240)
    assert "L40S" in told
    await driver.until(
        lambda: any(e["name"].endswith("-bundle.zip") for e in anna.elements.values()), 30
    )
    file = next(e for e in anna.elements.values() if e["name"].endswith("-bundle.zip"))
    answer = await anna.http.get(f"/files/{anna.thread}/{file['id']}")
    assert answer.status_code == 200
    (tmp_path / "bundle.zip").write_bytes(answer.content)
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        archive.extractall(tmp_path / "there")
    (folder,) = (tmp_path / "there").iterdir()
    assert f"kernelwright work {folder.name}" in told
    done = await asyncio.to_thread(  # there is no such GPU here, and the bundle knows its own
        subprocess.run, [*driver.COMMAND, "work", str(folder), "--target", "cpu"], text=True,
        capture_output=True, cwd=driver.ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "is for cuda" in done.stderr


@pytest.mark.exhaustive
async def test_pasted_code_is_as_good_as_a_file(server, visit, small):
    anna = await visit(server.url)
    await anna.say(f"faster please\n```python\n{small.read_text()}\n```")
    await anna.press("^cancel$", 240)
    await anna.read("SmallSoftmax")


async def test_what_nobody_understands_is_answered_with_buttons(server, visit, driver):
    anna = await visit(server.url)
    await anna.say("colourless elephants sleep furiously")
    await driver.until(lambda: anna.button(".") is not None, 60, anna.told)


@pytest.mark.exhaustive
async def test_conversations_and_files_survive_a_killed_server(mortal, visit, notes):
    anna = await visit(mortal.url)
    await anna.say("what can you do?", notes)
    await anna.read("is a CUDA kernel")
    await mortal.kill()
    await mortal.start()
    again = await visit(mortal.url, thread=anna.thread)
    await again.read("what can you do")
    file = next(e for e in again.elements.values() if e["name"] == notes.name)
    answer = await again.http.get(str(file["url"]))
    assert answer.text == notes.read_text()


async def test_nobody_comes_in_without_a_password(locked, visit, driver):
    async with httpx.AsyncClient(base_url=locked.url) as client:
        assert (await client.get("/project/settings")).status_code == 401
        assert (await client.post("/auth/header")).status_code == 400
        form = {"username": "anna", "password": "wrong horse battery"}
        assert (await client.post("/login", data=form)).status_code == 401
    visitor = driver.Visitor(locked.url, "anna")
    with pytest.raises(socketio.exceptions.ConnectionError):
        await visitor.open()
    await visitor.leave()


@pytest.mark.exhaustive
async def test_one_person_never_sees_anothers_conversation(locked, visit, driver, notes):
    anna = await visit(locked.url, "anna")
    await anna.say("what can you do?", notes)
    await anna.read("is a CUDA kernel")
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
    # The page of a conversation that is not his says so, and begins one of his own.
    stranger = await visit(locked.url, "bert", thread=anna.thread)
    await driver.until(lambda: stranger.not_found, 60)
    assert (stranger.steps, stranger.elements, stranger.actions) == ({}, {}, {})
    await stranger.say("colourless elephants sleep furiously")
    await driver.until(lambda: stranger.button(".") is not None, 60, stranger.told)
    assert stranger.thread != anna.thread
    kept = (await anna.http.get(f"/project/thread/{anna.thread}")).json()
    assert kept["userIdentifier"] == "anna"
    assert not any("elephants" in str(step["output"]) for step in kept["steps"])
    assert "elephants" not in anna.told()


async def send(visitor, name: str, kind: str, content: bytes) -> httpx.Response:
    """Attach a file of any name and kind, as a page of somebody's own making could."""
    return await visitor.http.post(
        "/project/file",
        params={"session_id": visitor.session},
        files={"file": (name, content, kind)},
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("page.html", "text/html"),
        ("page.py", "text/html"),
        ("drawing.svg", "image/svg+xml"),
        ("tool.exe", "application/octet-stream"),
    ],
)
async def test_what_is_attached_is_never_served_as_a_page(server, visit, name, kind):
    anna = await visit(server.url)
    answer = await send(anna, name, kind, b"<script>")
    assert answer.status_code == 200
    address = f"/project/file/{answer.json()['id']}"
    served = await anna.http.get(address, params={"session_id": anna.session})
    assert served.content == b"<script>"
    assert served.headers["content-disposition"] == "attachment"
    assert served.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert served.headers["x-content-type-options"] == "nosniff"


async def test_what_is_no_module_is_answered_in_words(server, visit, driver, tmp_path):
    anna = await visit(server.url)
    page, long = tmp_path / "page.html", tmp_path / "long.py"
    page.write_bytes(b"<script>")
    long.write_bytes(b"#" * 3_000_000)
    await anna.say("make this faster", page)
    await anna.read(r"page.{1,2}html is|archives of them only", 60)
    await driver.until(lambda: bool(anna.elements), 30)
    (file,) = anna.elements.values()
    served = await anna.http.get(f"/files/{anna.thread}/{file['id']}")
    assert served.headers["content-type"] == "application/octet-stream"
    assert served.headers["content-disposition"].startswith("attachment")

    await anna.say("make this faster", long)
    await anna.read("too long for a module", 60)
    assert anna.button("go") is None


async def test_a_file_of_more_than_10_mb_is_not_taken(server, visit):
    anna = await visit(server.url)
    for size in (10 * 2**20 + 1, 12 * 2**20):
        answer = await send(anna, "large.py", "text/x-python", b"#" * size)
        assert answer.status_code in (400, 413), size


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
        await stranger.disconnect()


async def test_a_second_server_of_one_home_says_so(server, driver, flags):
    second = driver.Server(server.home, *flags)
    second.log = server.home / "second.log"
    with pytest.raises(RuntimeError, match="another chat is served from"):
        await second.start()
