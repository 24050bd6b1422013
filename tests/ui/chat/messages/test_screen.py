"""Pages of one conversation: each has everything, nothing twice, whenever it came."""

from datetime import UTC, datetime

import pytest

from kernelwright.agents.assistant.types import PauseSearch, StopSearch
from kernelwright.ui.chat.messages.answers import message
from kernelwright.ui.chat.messages.lines import Button, Line, Sheet, id_of
from kernelwright.ui.chat.messages.screen import Screen

AT = datetime(2026, 3, 4, tzinfo=UTC)
PAUSE = Button(label="Pause", wish=PauseSearch())
STOP = Button(label="Stop", wish=StopSearch())


def line(key="round:1", words="It goes on.", **more):
    return Line(key=key, name="Round 1", at=AT, words=words, **more)


def sheet(content):
    return Sheet(key="tasks", name="tasks", kind="tasklist", content=content)


@pytest.fixture
def screen():
    return Screen("thread")


async def test_a_line_is_sent_once_and_again_when_it_changes(screen, look):
    page = look()
    await screen.add(page)
    await screen.draw("r", line())
    await screen.draw("r", line())
    await screen.draw("r", line(words="It is over."))
    outputs = [step["output"] for step in page.emitter.of("step")]
    assert outputs == ["It goes on.", "It is over."]
    assert len({step["id"] for step in page.emitter.of("step")}) == 1


async def test_every_page_gets_the_same(screen, look):
    pages = [look(id="one"), look(id="two")]
    for page in pages:
        await screen.add(page)
    await screen.draw("r", line(buttons=(PAUSE,)))
    assert pages[0].emitter.sent == pages[1].emitter.sent


async def test_a_page_that_comes_late_is_sent_what_is_new_and_every_button(screen, look):
    await screen.draw("r", line(buttons=(PAUSE,), sheets=(sheet("[]"),)))
    page = look()
    await screen.add(page)
    assert [step["output"] for step in page.emitter.of("step")] == ["It goes on."]
    assert len(page.emitter.of("element")) == 1
    assert list(page.emitter.buttons) == ["Pause"]


async def test_a_page_that_is_there_already_is_there_once(screen, look):
    page = look()
    await screen.add(page)
    await screen.add(page)
    await screen.draw("r", line())
    assert len(page.emitter.of("step")) == 1


async def test_buttons_are_exchanged(screen, look):
    page = look()
    await screen.add(page)
    await screen.draw("r", line(buttons=(PAUSE, STOP)))
    await screen.draw("r", line(buttons=(STOP,)))
    assert list(page.emitter.buttons) == ["Stop"]
    await screen.draw("r", line())
    assert page.emitter.buttons == {}


async def test_a_sheet_that_changed_has_a_new_address_and_the_same_id(screen, look):
    page = look()
    await screen.add(page)
    for content in ("[1]", "[1]", "[2]"):
        await screen.draw("r", line(words=content, sheets=(sheet(content),)))
    first, second = page.emitter.of("element")
    assert first["id"] == second["id"]
    assert first["url"] != second["url"]
    assert first["url"].startswith(f"/files/thread/{first['id']}")


async def test_what_the_store_has_is_not_sent_again(screen, look):
    page = look()
    await screen.draw("r", line())
    kept = screen.step(id_of("thread", "r", "round:1"))
    again = Screen("thread")
    await again.add(page)
    again.remember([kept])
    await again.draw("r", line())
    assert page.emitter.of("step") == []
    await again.draw("r", line(words="It is over."))
    assert len(page.emitter.of("step")) == 1


async def test_a_run_of_long_ago_comes_after_what_was_said_here(screen, look):
    page = look()
    await screen.add(page)
    screen.begin("r", "begun:1", "2026-11-21T08:00:00.000000Z")
    await screen.draw("r", line(key="begun:1"))
    assert page.emitter.of("step")[0]["createdAt"] == "2026-11-21T08:00:00.000000Z"


async def test_a_run_that_was_shown_here_before_keeps_its_place(screen, look):
    page = look()
    await screen.draw("r", line(key="begun:1"))
    kept = screen.step(id_of("thread", "r", "begun:1"))
    again = Screen("thread")
    await again.add(page)
    again.remember([kept])
    again.begin("r", "begun:1", "2026-11-21T08:00:00.000000Z")
    await again.draw("r", line())
    assert page.emitter.of("step")[0]["createdAt"].startswith("2026-03-04")


async def test_what_is_being_said_goes_when_it_is_over(screen, look):
    page = look()
    await screen.add(page)
    step = message("thread", "speech", "hm", "Kernelwright")
    await screen.speak(step, ended=False)
    await screen.speak(step, ended=True)
    assert [kind for kind, _ in page.emitter.sent] == ["step", "gone"]


async def test_a_screen_that_nobody_looks_at_says_so(screen, look):
    assert not screen.watched
    await screen.add(look())
    assert screen.watched
