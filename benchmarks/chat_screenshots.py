"""Makes the pictures of the chat that the README shows: a real search, in a real browser.

`python benchmarks/chat_screenshots.py` writes to docs/pictures: the card, the search, the result,
each light, dark and as on a phone. Needs Debian's chromium.
"""

import argparse
import asyncio
import re
import shutil
import tempfile
from pathlib import Path

from chat_driver import ROOT, Server
from playwright.async_api import Browser, Page, async_playwright, expect

PICTURES = ROOT / "docs" / "pictures"
PATIENCE_MS = 300_000
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
    "--disable-background-networking --disable-component-update --disable-sync"
)
# Width, height, scheme.
LOOKS: dict[str, tuple[int, int, str]] = {
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
        server = Server(Path(home), "--target", "cpu")
        await server.start()
        try:
            async with async_playwright() as playwright:
                launch = playwright.chromium.launch
                browser = await launch(executable_path=executable, args=FLAGS.split())
                await _walk(browser, server.url, file, out)
                await browser.close()
        finally:
            await server.stop()


async def _walk(browser: Browser, url: str, file: Path, out: Path) -> None:
    page = await (await browser.new_context(color_scheme="light")).new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.set_viewport_size({"width": 1180, "height": 900})
    await page.goto(url)
    await expect(page.locator("#chat-input")).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_load_state("networkidle")
    await look(page, "start", out)
    await page.set_input_files("input[type=file]", file)
    await page.wait_for_timeout(1000)
    await page.locator("#chat-input").press_sequentially("Make this faster, please")
    await page.keyboard.press("Enter")
    go = page.get_by_role("button", name=re.compile("^Go$")).last
    await expect(go).to_be_visible(timeout=PATIENCE_MS)
    await look(page, "card", out)
    await go.click()
    await expect(page.get_by_text(re.compile("round 1", re.I)).last).to_be_visible(
        timeout=PATIENCE_MS
    )
    await page.wait_for_timeout(6000)
    await look(page, "search", out)
    home = page.get_by_role("button", name=re.compile("take it home|export", re.I)).last
    await expect(home).to_be_visible(timeout=PATIENCE_MS)
    await page.wait_for_timeout(2000)
    await look(page, "result", out)


async def look(page: Page, name: str, out: Path) -> None:
    """One state in every look; the page is the same one, so the search is too."""
    for look, (width, height, scheme) in LOOKS.items():
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": height})
        await page.wait_for_timeout(700)
        await page.screenshot(path=out / f"chat-{name}-{look}.png")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=ROOT / "examples" / "softmax.py")
    parser.add_argument("--out", type=Path, default=PICTURES)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(pictures(chosen.file, chosen.out))


if __name__ == "__main__":
    main()
