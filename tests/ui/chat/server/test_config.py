import json
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kernelwright.ui.chat.server.config import PUBLIC, write_root
from kernelwright.ui.chat.settings import ChatSettings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_root(ChatSettings(home=tmp_path))


def luminance(hsl: str) -> float:
    """The relative luminance of `H S% L%`, as the WCAG define it."""
    import colorsys

    hue, saturation, lightness = (float(part.rstrip("%")) for part in hsl.split())
    channels = colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_html_of_a_person_is_never_shown_as_html(root):
    features = tomllib.loads((root / ".chainlit" / "config.toml").read_text())["features"]
    assert features["unsafe_allow_html"] is False
    assert features["mcp"]["enabled"] is False


def test_every_kind_of_small_file_may_be_attached_and_is_answered_in_words(root):
    features = tomllib.loads((root / ".chainlit" / "config.toml").read_text())["features"]
    upload = features["spontaneous_file_upload"]
    assert upload["max_size_mb"] == 10
    assert upload["accept"] == ["*/*"]


def test_the_page_links_to_nothing_elsewhere(root):
    page = (root / "page" / "index.html").read_text()
    assert "http" not in page
    assert "/assets/index" in page
    assert (root / "page" / "assets").is_dir()


def test_a_second_start_writes_everything_anew(root, tmp_path):
    (root / "public" / "stale.js").write_text("")
    (root / ".chainlit" / "config.toml").write_text("")
    write_root(ChatSettings(home=tmp_path))
    assert not (root / "public" / "stale.js").exists()
    assert "Kernelwright" in (root / ".chainlit" / "config.toml").read_text()


def test_our_words_stand_in_for_chainlits(root):
    words = json.loads((root / ".chainlit" / "translations" / "en-US.json").read_text())
    assert words["auth"]["login"]["form"]["email"]["label"] == "Name"
    assert "LLM" not in words["chat"]["watermark"]
    failed = words["auth"]["login"]["errors"]
    assert failed["credentialsSignin"] == "Login failed: name or password is wrong."


@pytest.mark.parametrize("picture", sorted(PUBLIC.rglob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_our_own_and_run_nothing(picture):
    tags = {node.tag.split("}")[1] for node in ElementTree.parse(picture).iter()}
    assert tags <= {"svg", "rect", "path", "text"}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("--foreground", "--background"),
        ("--muted-foreground", "--background"),
        ("--primary-foreground", "--primary"),
        ("--accent-foreground", "--accent"),
        ("--card-foreground", "--card"),
        ("--sidebar-foreground", "--sidebar-background"),
        ("--destructive-foreground", "--destructive"),
    ],
)
def test_text_can_be_read(theme, ink, paper):
    colours = json.loads((PUBLIC / "theme.json").read_text())["variables"][theme]
    assert contrast(colours[ink], colours[paper]) >= 4.5


def test_the_start_page_says_what_this_is_and_a_phone_shows_every_column():
    style = (PUBLIC / "kernelwright.css").read_text()
    assert "#welcome-screen::before" in style
    assert "searches for faster kernels on this machine" in style
    phone = style.partition("@media (max-width: 640px)")[2]
    assert "flex-wrap: wrap" in phone
    assert "overflow-x" not in phone
