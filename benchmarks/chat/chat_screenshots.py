"""Makes the pictures of the chat that the README shows: a real search, in a real browser.

`python benchmarks/chat/chat_screenshots.py` writes to docs/pictures: the card, the search, the
result, each light, dark and as on a phone. Needs Debian's chromium.
"""

import argparse
import asyncio
import re
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from chat_driver import ROOT, Server, carry_out
from playwright.async_api import Browser, Page, async_playwright, expect

PICTURES = ROOT / "docs" / "pictures"
PATIENCE_MS = 300_000
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
    "--disable-background-networking --disable-component-update --disable-sync"
)
# Width, height, scheme.
LOOKS: dict[str, tuple[int, int, Literal["light", "dark"]]] = {
    "light": (1180, 900, "light"),
    "dark": (1180, 900, "dark"),
    "phone": (390, 844, "light"),
}


async def pictures(file: Path, out: Path) -> None:
    """Walk through a search once, and look at it in every way at each stop."""
    executable = shutil.which("chromium")
    if executable is None:
        raise SystemExit("there is no chromium here: apt install chromium")
    with tempfile.TemporaryDirectory(prefix="kernelwright-pictures-") as home:
        async with (
            Server(Path(home), "--target", "cpu") as server,
            async_playwright() as playwright,
        ):
            launch = playwright.chromium.launch
            browser = await launch(executable_path=executable, args=FLAGS.split())
            await _walk(browser, server.url, file, out)
            await browser.close()


async def _walk(browser: Browser, url: str, file: Path, out: Path) -> None:
    pages = {name: await _page(browser, *look) for name, look in LOOKS.items()}
    page = pages["light"]
    await asyncio.gather(*(opened.goto(url) for opened in pages.values()))
    await expect(page.get_by_text("Try it")).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_load_state("networkidle")
    await _look(pages, "start", out)
    await page.set_input_files("input[type=file]", file)
    await page.wait_for_timeout(1500)
    await page.locator("#chat-input").press_sequentially("Make this faster, please")
    await page.keyboard.press("Enter")
    go = page.get_by_role("button", name="Go", exact=True).last
    await expect(go).to_be_visible(timeout=PATIENCE_MS)
    # The same conversation in every look at once, as on several devices.
    await asyncio.gather(*(pages[name].goto(page.url) for name in ("dark", "phone")))
    await page.wait_for_timeout(3000)
    await _look(pages, "card", out)
    await go.click()
    await expect(page.get_by_text("leaders").last).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_timeout(5000)
    await _look(pages, "search", out, to="the search is")
    home = page.get_by_role("button", name="Take it home").last
    await expect(home).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_timeout(4000)
    await _look(pages, "result", out, to="It ended because")


async def _page(
    browser: Browser, width: int, height: int, scheme: Literal["light", "dark"]
) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    )
    context.set_default_timeout(PATIENCE_MS)
    return await context.new_page()


async def _look(pages: dict[str, Page], name: str, out: Path, to: str = "") -> None:
    """One state in every look, with what matters in the middle."""
    for look, page in pages.items():
        if to:
            # A live message is drawn anew while one looks at it, so this waits for nothing.
            found = page.get_by_text(re.compile(to)).locator("visible=true").last
            await found.evaluate("found => found.scrollIntoView({block: 'start'})")
            await page.wait_for_timeout(300)
        await page.screenshot(path=out / f"chat-{name}-{look}.png")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=ROOT / "examples" / "softmax.py")
    parser.add_argument("--out", type=Path, default=PICTURES)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    carry_out(pictures(chosen.file, chosen.out))


if __name__ == "__main__":
    main()
