"""The whole story in a real browser, on the CPU of this machine.

Every request of the page is looked at: none may leave the loopback, none may break the policy.
"""

import asyncio
import contextlib
import re
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, Route, expect

PATIENCE_MS = 240_000

# Opens what was exported as a person would: beside the reference, in a program of its own.
OPENS = """
import importlib.util, sys, torch
def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
reference, exported = load(sys.argv[1], "reference"), load(sys.argv[2], "exported")
x = reference.get_inputs()[0]
torch.testing.assert_close(exported.SmallSoftmax()(x), reference.SmallSoftmax()(x))
print("the same")
"""


# What moves on a page is drawn again sixty times a second, here by a processor that tests need.
STILL = """
const still = new CSSStyleSheet();
still.replaceSync("*, *::before, *::after { animation: none !important; }");
document.adoptedStyleSheets = [still];
"""


@pytest.fixture
async def page(browser, server):
    """A page at the chat that all share."""
    async with page_at(browser, server.url) as opened:
        yield opened


@contextlib.asynccontextmanager
async def page_at(browser: Browser, url: str) -> AsyncIterator[Page]:
    """A page at a chat; nothing that it did may have left this machine."""
    context = await browser.new_context(accept_downloads=True, locale="en-GB")
    context.set_default_timeout(PATIENCE_MS)
    await context.add_init_script(STILL)
    opened = await context.new_page()
    outside: list[str] = []
    refused: list[str] = []

    def look(request: Request) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None, ""):
            outside.append(request.url)

    def read(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            refused.append(message.text)

    context.on("request", look)
    opened.on("console", read)
    opened.on("pageerror", lambda error: refused.append(str(error)))
    await opened.goto(url)
    await ready(opened)
    yield opened
    await context.close()
    assert outside == []
    assert refused == []


async def ready(page: Page) -> None:
    """The page is connected: it can be written to."""
    await expect(page.locator("#chat-input")).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_load_state("networkidle")


async def say(page: Page, words: str) -> None:
    """Write a message and send it; while a file is on its way up the page does not send."""
    composer = page.locator("#chat-input")
    await composer.click()
    await composer.press_sequentially(words)
    for _ in range(60):
        await page.keyboard.press("Enter")
        await page.wait_for_timeout(1000)
        if not str(await composer.evaluate("e => e.value ?? e.textContent")).strip():
            return
    raise AssertionError(f"the page never sent {words!r}")


def button(page: Page, label: str):
    """The last button of that name."""
    return page.get_by_role("button", name=re.compile(label, re.I)).last


async def shows(page: Page, words: str) -> None:
    """Wait until the page says this."""
    await expect(page.get_by_text(re.compile(words, re.I)).last).to_be_visible(timeout=PATIENCE_MS)


async def attach(page: Page, file: Path) -> None:
    """Attach a file and wait until the server has it."""
    async with page.expect_response("**/project/file**", timeout=PATIENCE_MS) as coming:
        await page.set_input_files("input[type=file]", file)
    assert (await coming.value).ok
    await shows(page, re.escape(file.name))


async def begin(page: Page, file: Path) -> None:
    """Attach, look at the card, confirm."""
    await attach(page, file)
    await say(page, "make this faster in 1 round")
    await expect(button(page, "^Go$")).to_be_visible(timeout=PATIENCE_MS)
    await shows(page, "SmallSoftmax")
    await button(page, "^Go$").click()
    await expect(button(page, "Pause")).to_be_visible(timeout=PATIENCE_MS)


async def answers(page: Page, question: str, words: str) -> None:
    """Wait until something that was said after the question says this."""
    after = page.locator(
        f"xpath=//*[@data-step-type='user_message'][contains(., '{question}')]"
        "/following::*[@data-step-type='assistant_message']"
    )
    found = after.filter(has_text=re.compile(words, re.I)).last
    await expect(found).to_be_visible(timeout=PATIENCE_MS)


def has_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


async def test_the_whole_story(page, server, small, tmp_path):
    await begin(page, small)
    await shows(page, "in round 1,")  # watch; before that it says what comes before the first
    await say(page, "stop trying shared memory")  # steer
    await answers(page, "stop trying shared memory", "shared memory|already")
    await button(page, "Pause").click()
    await expect(button(page, "Continue")).to_be_visible(timeout=PATIENCE_MS)
    address = page.url

    await page.reload()
    await ready(page)
    assert page.url == address
    await shows(page, "make this faster")
    await shows(page, "round 1")
    await button(page, "Continue").click()
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0, timeout=PATIENCE_MS)

    await shows(page, "Round 1: best")  # paused early, it had none
    await say(page, "why is the best one fast?")
    await answers(page, "why is the best one fast", "floor|bound|idea|baseline")

    await button(page, "Take it home|^Export").click()
    await button(page, "Yes, export it").click()
    link = page.get_by_text(re.compile(r"\.zip$")).last
    async with page.expect_download() as coming:
        await link.click()
    exported = tmp_path / "exported"
    with zipfile.ZipFile(await (await coming.value).path()) as archive:
        archive.extractall(exported)
    await opens(small, next(exported.rglob("module.py")))
    assert not has_torch(server.pid)  # workers have


@pytest.mark.exhaustive  # over the socket in every run
async def test_what_was_attached_and_made_is_there_after_a_restart(browser, mortal, small):
    async with page_at(browser, mortal.url) as page:
        await begin(page, small)
        await button(page, "^Stop").click()
        await expect(button(page, "Take it home|^Continue")).to_be_visible(timeout=PATIENCE_MS)
        address = page.url
        await mortal.kill()
        mortal.port = urlsplit(mortal.url).port
        await mortal.start()
        await page.goto(address)
        await ready(page)
        await shows(page, re.escape(small.name))
        await shows(page, "make this faster")
        await expect(button(page, "Take it home|^Continue")).to_be_visible(timeout=PATIENCE_MS)


HOSTILE = """
import torch
from torch import nn

class Model(nn.Module):
    \"\"\"<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>\"\"\"

    def forward(self, x):
        return torch.relu(x)  # </code></pre><script>document.title='owned'</script>

def get_inputs():
    return [torch.randn(8, 8)]
"""


@pytest.mark.exhaustive
async def test_nothing_that_is_uploaded_puts_script_into_the_page(page, tmp_path):
    file = tmp_path / "<img src=x onerror=document.title='owned'>.py"
    file.write_text(HOSTILE)
    await page.set_input_files("input[type=file]", file)
    await say(page, "[click](javascript:document.title='owned') <svg onload=alert(1)> faster")
    await expect(button(page, "^(Go|Cancel)$")).to_be_visible(timeout=PATIENCE_MS)
    await page.reload()
    await ready(page)
    await shows(page, "relu")
    await expect(page).to_have_title("Kernelwright")  # and not "owned"
    assert await page.locator("img[src='x']").count() == 0
    assert await page.locator("a[href^='javascript']").count() == 0


@pytest.mark.exhaustive
async def test_a_reload_finds_its_conversation_in_whatever_order_its_cookies_come(page):
    """A reloaded page connects twice; the first to ask for a cookie would get it right after."""
    await say(page, "what can you do?")
    await page.wait_for_url(re.compile("/thread/"))
    asked: list[Route] = []
    second = asyncio.Event()

    async def swapped(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(second.wait(), 2)
            await route.continue_()
        else:
            await route.fulfill(response=await route.fetch())
            second.set()

    await page.route("**/set-session-cookie", swapped)
    await page.reload()
    await ready(page)
    await shows(page, "what can you do")
    assert len(asked) == 2


@pytest.mark.exhaustive
async def test_a_file_that_is_attached_before_the_page_is_connected_waits_for_it(page, small):
    attached = asyncio.Event()

    async def later(route: Route) -> None:
        await attached.wait()
        await page.wait_for_timeout(500)  # the file asks before there is a session
        await route.continue_()

    await page.route("**/set-session-cookie", later)
    page.on("request", lambda asked: attached.set() if "/project/file" in asked.url else None)
    await page.goto(page.url)
    await expect(page.locator("#chat-input")).to_be_visible(timeout=PATIENCE_MS)
    await attach(page, small)
    await say(page, "make this faster")
    await expect(button(page, "^Go$")).to_be_visible(timeout=PATIENCE_MS)


@pytest.mark.exhaustive
async def test_it_can_be_used_on_a_phone(page, small):
    await page.set_viewport_size({"width": 360, "height": 740})
    await attach(page, small)
    await say(page, "make this faster")
    await expect(button(page, "^Go$")).to_be_visible(timeout=PATIENCE_MS)
    wide = await page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360


NO_MODULES = {
    "kernel.cu": "kernel.cu is a CUDA kernel, not a PyTorch module",
    "notes.ipynb": "notes.ipynb is no notebook that can be read",
    "all.zip": "all.zip is no archive that can be unpacked",
}
WISHES = {
    "no half precision": "never.*half precision",
    "only half precision": "Earlier you had said.*the newer wish replaces it",
    "use at most 10000 tokens": "will spend at most 10000 tokens",
    "show all wishes": "10000 tokens of language models",
}
QUESTIONS = {
    "how does it work": "compares it with your module evaluated in float64",
    "will it still train": "Yes, it still trains, but not faster",
    "how do I use the result in my project": "from faster_small_softmax import SmallSoftmax",
    "compare it with torch.compile": "beside PyTorch's own ways",
    "is it safe in production": "Before you rely on it, run",
    "wie benutze ich das Ergebnis?": "from faster_small_softmax import SmallSoftmax",
    "Ist es schneller als torch.compile?": "beside PyTorch's own ways",
    "where does it stand?": "best",
}


@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
async def test_every_sentence_of_a_new_user_gets_its_effect_or_its_answer(page, small, tmp_path):
    for name, words in NO_MODULES.items():
        (tmp_path / name).write_bytes(b"{}")
        await attach(page, tmp_path / name)
        await say(page, f"make {name} faster")
        await answers(page, f"make {name} faster", re.escape(words))
    assert await button(page, "^Go$").count() == 0

    first = "a deep search, take up to 6 minutes"
    await attach(page, small)
    await say(page, first)
    await answers(page, first, "As you said: a deep search, at most 6 min 0 s")
    for sentence, words in WISHES.items():
        await say(page, sentence)
        await answers(page, sentence, words)
    await say(page, "cancel")
    await answers(page, "cancel", "Put away")

    await begin(page, small)
    over = page.get_by_role("button", name="Pause")
    await expect(over).to_have_count(0, timeout=3 * PATIENCE_MS)  # certified on a busy machine
    for sentence, words in QUESTIONS.items():
        await say(page, sentence)
        await answers(page, sentence, words)
    await page.reload()
    await ready(page)
    await shows(page, "where does it stand")
    await figures_agree(await page.locator("body").inner_text())


async def figures_agree(text: str) -> None:
    """Wherever the page at rest speaks of a candidate's certified time, it says the same."""
    taken = r"([\d.]+ (?:ns|µs|ms|s)) \(certified\)"
    leaders = dict(re.findall(rf"\b(v\d+)\s+{taken}", text))
    assert leaders, text
    said = set(re.findall(taken, text))
    assert said == set(leaders.values()), text
    best = next(iter(leaders.values()))
    assert set(re.findall(rf"best(?: so far)?:? {taken}", text, re.I)) <= {best}, text


async def opens(reference: Path, module: Path) -> None:
    """The exported module gives the reference's results."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OPENS, str(reference), str(module),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"the same" in said
