"""What others write is shown as they wrote it, and does nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.ui.chat.messages.safe import fence, inline, mend, table, text

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![a](http://elsewhere/x.png)",
    "[press me](javascript:alert(1))",
    ":::warning\nboo\n:::",
    "# heading",
    "- item",
    "a | b",
    "https://elsewhere/ and www.elsewhere.org",
    "```\nout of the fence",
    "\u200b\u202e reversed",
)
ESCAPABLE = r"\`*_{}[]()#+!|<>~:&@$=^"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_others_has_no_sign_that_is_not_escaped(hostile):
    assert bare_signs(text(hostile)) == ""


@given(st.text())
def test_no_text_at_all_has_one(anything):
    shown = text(anything)
    assert bare_signs(shown) == ""
    assert "\n" not in shown
    assert not shown.startswith("-")


@given(st.text(), st.sampled_from(["", "cpp", "diff", "text"]))
def test_nothing_inside_closes_a_fence(anything, language):
    first, *inside, last = fence(anything, language).split("\n")
    ticks = re.match("`+", first)
    assert ticks is not None
    assert last == ticks.group()
    assert all(ticks.group() not in line for line in inside)


@given(st.text())
def test_nothing_inside_ends_code_in_a_line(anything):
    shown = inline(anything)
    ticks = re.match("`+", shown).group()
    assert shown.endswith(ticks)
    assert ticks not in shown[len(ticks) : -len(ticks)]


def test_a_cell_stays_one_cell():
    rows = table(("a", "b"), [("x | y", "z\nw")]).splitlines()
    assert len(rows) == 3
    assert len(re.findall(r"(?<!\\)\|", rows[2])) == 3


def test_a_table_without_names_of_columns_is_a_list():
    assert table(("", ""), [("floor", "1 ms")]) == "- **floor**: 1 ms"


def test_our_own_words_keep_their_markdown_but_no_directive_and_no_image():
    words = "**bold** `64x128:float32` 64x128:float32 ![p](http://elsewhere/p.png)\n\n:::note"
    mended = mend(words)
    assert mended.startswith("**bold** `64x128:float32` 64x128\\:float32 !\\[p]")
    assert "\n:::" not in mended


def test_a_source_in_our_own_words_stays_as_it_is():
    words = "Look:\n\n```python\nx: int = y[a:b]\n```\n\nand a:b"
    assert mend(words) == words.replace("and a:b", r"and a\:b")


def test_a_long_source_is_cut_and_says_so():
    assert "more characters]" in fence("x" * 100_000)
    assert len(fence("x" * 100_000)) < 30_000


def bare_signs(shown: str) -> str:
    """The signs of Markdown that nothing takes their meaning from."""
    return "".join(re.findall(rf"[{re.escape(ESCAPABLE[1:])}]", re.sub(r"\\.", "", shown)))
