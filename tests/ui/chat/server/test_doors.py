"""Who may come in changes while a server runs: a real process, real sockets, a real browser."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import socketio
from playwright.async_api import expect

PATIENCE_MS = 60_000


async def user(driver, home: Path, *arguments: str, password: str = "") -> tuple[int, str]:
    """Call `kernelwright user ...` beside a server; its exit status and what it said."""
    command = [*driver.COMMAND, "user", *arguments, "--run-dir", str(home)]
    done = await asyncio.to_thread(
        subprocess.run, command, input=(password or driver.PASSWORD) + "\n", text=True,
        capture_output=True, cwd=driver.ROOT, check=False,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(driver, flags, tmp_path_factory):
    """A server whose people come and go; every test leaves it open, as it found it."""
    async with driver.Server(tmp_path_factory.mktemp("house") / "home", *flags) as running:
        yield running


async def until_closed(driver, visitor) -> None:
    await driver.until(lambda: not visitor._socket.connected, 10)


@pytest.mark.exhaustive  # what it asks of cookies: test_login
async def test_somebody_added_locks_a_running_server_at_once(house, visit, driver):
    nobody = await visit(house.url)
    await nobody.say("what can you do?")
    await nobody.read("search", 30)
    address = f"/project/thread/{nobody.thread}"
    assert (await nobody.http.get(address)).status_code == 200

    status, words = await user(driver, house.home, "add", "anna")
    assert status == 0
    assert f"The chat at {house.url} is running" in words
    assert "everybody to log in" in words

    assert (await nobody.http.get(address)).status_code == 401
    assert (await nobody.http.get("/project/settings")).status_code == 401
    assert (await nobody.http.post("/auth/header")).status_code == 400
    listing = {"pagination": {"first": 20}, "filter": {}}
    assert (await nobody.http.post("/project/threads", json=listing)).status_code == 401
    await until_closed(driver, nobody)
    again = driver.Visitor(house.url)
    again.http.cookies = nobody.http.cookies
    with pytest.raises(socketio.exceptions.ConnectionError):
        await again.open(nobody.thread)
    await again.leave()

    anna = await visit(house.url, "anna")
    await anna.say("what can you do?")
    await anna.read("search", 30)
    assert (await anna.http.get(address)).status_code == 401  # nobody's thread is not hers

    # A second connection of the same person is hers alone to lose.
    status, words = await user(driver, house.home, "add", "anna", password="another horse")
    assert status == 0
    assert "whoever was there as anna is out" in words
    await until_closed(driver, anna)
    assert (await anna.http.get(f"/project/thread/{anna.thread}")).status_code == 401
    async with httpx.AsyncClient(base_url=house.url) as client:
        form = {"username": "anna", "password": driver.PASSWORD}
        assert (await client.post("/login", data=form)).status_code == 401
        form["password"] = "another horse"
        assert (await client.post("/login", data=form)).status_code == 200

        status, words = await user(driver, house.home, "remove", "anna")
        assert status == 0
        assert "open to whoever is at this machine" in words
        assert (await client.get(f"/project/thread/{anna.thread}")).status_code == 401


@pytest.mark.exhaustive
async def test_a_message_that_was_sent_after_the_lock_is_never_heard(house, visit, driver):
    nobody = await visit(house.url)
    await nobody.say("what can you do?")
    await nobody.read("search", 30)
    before = len(nobody.steps)
    assert (await user(driver, house.home, "add", "anna"))[0] == 0
    if nobody._socket.connected:  # the quarter of a second in which an idle socket is open still
        await nobody.say("what works on this machine?")
    await until_closed(driver, nobody)
    assert len(nobody.steps) == before
    assert (await user(driver, house.home, "remove", "anna"))[0] == 0


async def test_without_a_running_server_it_says_that(tmp_path, driver):
    status, words = await user(driver, tmp_path, "add", "anna")
    assert status == 0
    assert "anna may log in. No chat is running here" in words


@pytest.mark.exhaustive  # the same without a page is seen above in every run
async def test_an_open_page_asks_to_log_in_and_a_failed_login_says_so(house, browser, driver):
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.goto(house.url)
    await expect(page.locator("#chat-input")).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_load_state("networkidle")
    await page.locator("#chat-input").press_sequentially("what can you do?")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("/thread/"))
    thread = page.url

    assert (await user(driver, house.home, "add", "anna"))[0] == 0
    await page.wait_for_url(re.compile("/login"))
    await expect(page.get_by_text("Could not reach the server")).to_have_count(0)

    async def log_in(password: str) -> None:
        await page.locator("#email").fill("anna")
        await page.locator("#password").fill(password)
        await page.get_by_role("button", name="Log in").click()

    await log_in("not her password")
    await expect(page.get_by_text("Login failed: name or password is wrong.")).to_be_visible()
    await log_in(driver.PASSWORD)
    await expect(page.locator("#chat-input")).to_be_visible(timeout=PATIENCE_MS)

    await page.goto(thread)  # what nobody wrote before is not hers
    await expect(page.get_by_text(re.compile("not found", re.I))).to_be_visible()
    await expect(page.locator("#chat-input")).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_timeout(2000)
    await expect(page.get_by_text("Could not reach the server")).to_have_count(0)
    await page.context.close()
    assert (await user(driver, house.home, "remove", "anna"))[0] == 0


@pytest.fixture
def no_bubblewrap(tmp_path, monkeypatch):
    """Every program of this machine but that one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in sorted(Path(place).iterdir()) if Path(place).is_dir() else ():
            if program.name != "bwrap" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("KERNELWRIGHT_ISOLATION", raising=False)
    assert not any(Path(p, "bwrap").exists() for p in os.environ["PATH"].split(":"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", [(), ("--host", "0.0.0.0")])
async def test_people_need_bubblewrap(no_bubblewrap, tmp_path, driver, where):
    home = tmp_path / "home"
    status, words = await user(driver, home, "add", "anna")
    assert status == 0
    assert "apt-get install bubblewrap" in words
    command = [*driver.COMMAND, "chat", "--headless", "--port", "0", "--target", "cpu", *where]
    done = await asyncio.to_thread(
        subprocess.run, [*command, "--run-dir", str(home)], text=True, capture_output=True,
        cwd=driver.ROOT, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "apt-get install bubblewrap" in done.stderr


@pytest.mark.exhaustive
async def test_somebody_added_where_bubblewrap_is_missing_ends_the_taking_of_files(
    no_bubblewrap, tmp_path, driver, flags, visit, small
):
    async with driver.Server(tmp_path / "home", *flags) as server:
        nobody = await visit(server.url)
        await nobody.say("what can you do?")
        await nobody.read("search", 30)
        status, words = await user(driver, server.home, "add", "anna")
        assert status == 3
        assert "the chat is locked" in words
        assert "apt-get install bubblewrap" in words
        await until_closed(driver, nobody)
        anna = await visit(server.url, "anna")
        await anna.say("make this faster", small)
        await anna.read("take no files.*apt-get install bubblewrap", 60)
        assert anna.button("go") is None
