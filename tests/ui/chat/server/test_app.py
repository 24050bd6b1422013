"""What a page sends and what it is shown: a real controller, real archives and no server."""

import asyncio
import zipfile

import chainlit as cl
import pytest
from chainlit.element import File

from kernelwright.agents.assistant.types import (
    AskForHelp,
    ChatReply,
    ExportResult,
    Offer,
    PauseSearch,
    ReopenRun,
    ShowSteering,
    StartSearch,
    StopSearch,
)
from kernelwright.agents.assistant.types.pieces import Code
from kernelwright.graphs.conversation.background.store import folder_of
from kernelwright.graphs.run_view.events import EVENT
from kernelwright.tools.archive import Archive
from kernelwright.ui.chat.messages.answers import kept_offers
from kernelwright.ui.chat.messages.elements import action_of
from kernelwright.ui.chat.messages.lines import Button, id_of
from kernelwright.ui.chat.messages.presenting import Presentation
from kernelwright.ui.chat.server import app
from kernelwright.ui.chat.server.state import close_server, open_server, server_state
from kernelwright.ui.chat.settings import ChatSettings, use


@pytest.fixture
async def opened(tmp_path):
    """A server on the CPU, with nobody in it."""
    use(ChatSettings(home=tmp_path, target="cpu"))
    yield await open_server()
    await close_server()


@pytest.fixture
def run(recording, tmp_path):
    """A finished run of whoever sits at this machine."""
    home = folder_of(tmp_path, "local")
    home.mkdir(parents=True)
    return recording().archive(home)


async def press(wish, label="Press", quiet=False, run=""):
    await app.press(action_of("id", Button(label=label, wish=wish, quiet=quiet), "message", run))


async def until(what, patience_s=120):
    async with asyncio.timeout(patience_s):
        while not what():  # noqa: ASYNC110  # what is waited for is a page
            await asyncio.sleep(0.02)


async def shown_whole(page, home, run):
    """Wait until a page has every line of a run, its progress, its result, buttons and plots."""
    expected = {
        id_of("thread", run, key) for key in (*lines_of(home, run), "progress", "result:18")
    }
    await until(lambda: expected <= {step["id"] for step in page.emitter.of("step")})
    await until(lambda: {"Continue", "Report", "Take it home"} <= set(page.emitter.buttons))
    kinds = {"plotly", "tasklist"}
    await until(lambda: kinds <= {element["type"] for element in page.emitter.of("element")})


async def rested(page):
    """Wait until a page is sent nothing more."""
    seen = -1
    while seen != len(page.emitter.sent):
        seen = len(page.emitter.sent)
        await asyncio.sleep(0.5)


def texts(page):
    return [step["output"] for step in page.emitter.of("step")]


def lines_of(home, run):
    archive = Archive.open(run, folder_of(home, "local"))
    presentation = Presentation(run)
    for item in archive.events(0):
        presentation.take(item.seq, EVENT.validate_json(item.payload))
    archive.close()
    return presentation.lines


async def test_a_question_is_answered(opened, look):
    page = look()
    await app.hear(cl.Message("what can you do?"))
    assert any("search" in text for text in texts(page))


async def test_what_nobody_understands_is_answered_with_buttons(opened, look):
    page = look()
    await app.hear(cl.Message("blubb quux zorp"))
    assert page.emitter.buttons, page.emitter.sent


async def test_a_button_says_its_words_for_the_person_and_is_answered(opened, look):
    page = look()
    await press(AskForHelp(), label="What can I ask?")
    said, answer = page.emitter.of("step")[:2]
    assert (said["type"], said["output"]) == ("user_message", "What can I ask?")
    assert answer["type"] == "assistant_message"


async def test_a_button_of_a_card_is_about_the_run_of_that_card(opened, look, recording, tmp_path):
    home = folder_of(tmp_path, "local")
    home.mkdir(parents=True)
    first = recording().archive(home)
    page = look()
    await press(ReopenRun(run=first))
    view = server_state().view_of("thread", "local")
    await view.controller._context.store.put(
        view.controller._context.now.model_copy(update={"run": ""})
    )
    await press(ExportResult(), run=first)
    assert view.controller.run == first
    assert any("I would export" in text for text in texts(page))
    await press(ExportResult(), run="gone-0101-0000")
    assert "know no such run" in texts(page)[-1]


async def test_a_broken_archive_or_notebook_is_answered_in_words(opened, look):
    page = look()
    for name, words in (("all.zip", "is no archive"), ("nb.ipynb", "is no notebook")):
        path = opened.settings.home / name
        path.write_bytes(b"PK")
        message = cl.Message("make it faster", elements=[File(name=name, path=str(path))])
        await app.hear(message)
        assert words in texts(page)[-1]


MODULE = "from torch import nn\nclass {0}(nn.Module):\n    def forward(self, x): return x\n"


async def test_of_an_archive_with_several_modules_each_has_a_button(opened, look):
    page = look()
    path = opened.settings.home / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/a.py", MODULE.format("Left"))
        archive.writestr("b.py", MODULE.format("Right"))
    await app.hear(cl.Message("faster", elements=[File(name="all.zip", path=str(path))]))
    assert "several modules that could be meant: b.py" in texts(page)[-1]
    assert {"b.py:Right", "pkg/a.py:Left"} <= set(page.emitter.buttons)


@pytest.mark.exhaustive
async def test_a_file_that_takes_long_shows_signs_of_life_in_one_line(opened, look):
    page = look()
    path = opened.settings.home / "slow.py"
    path.write_text("import time\ntime.sleep(12)\nx = 1\n")
    await app.hear(cl.Message("", elements=[File(name="slow.py", path=str(path))]))
    said = [step for step in page.emitter.of("step") if "Still reading slow.py" in step["output"]]
    assert said
    assert len({step["id"] for step in said}) == 1
    assert said[0]["output"].endswith((" s, waiting.", " s, using the processor."))
    assert "no nn.Module" in texts(page)[-1]


async def test_a_quiet_button_says_nothing(opened, look):
    page = look()
    await press(AskForHelp(), quiet=True)
    assert all(step["type"] == "assistant_message" for step in page.emitter.of("step"))


async def test_what_is_no_button_of_ours_does_nothing(opened, look):
    page = look()
    await app.press(cl.Action(name="wish", payload={"wish": '{"kind": "format_disk"}'}))
    assert page.emitter.sent == []


async def test_an_answered_question_loses_its_buttons(opened, look):
    page = look()
    await app.hear(cl.Message("blubb quux zorp"))
    before = set(page.emitter.buttons)
    await press(StartSearch())
    assert not before & set(page.emitter.buttons)


async def test_a_run_is_shown_whole(opened, look, run, tmp_path):
    page = look()
    await press(ReopenRun(run=run))
    await shown_whole(page, tmp_path, run)
    await rested(page)
    assert {element["type"] for element in page.emitter.of("element")} == {"plotly", "tasklist"}


async def test_a_reopened_run_comes_after_what_was_said(opened, look, run):
    page = look()
    await app.hear(cl.Message("what can you do?"))
    said = page.emitter.of("step")[0]["createdAt"]
    await press(ReopenRun(run=run))
    await until(lambda: any("as fast as the best" in text for text in texts(page)))
    assert all(step["createdAt"] >= said for step in page.emitter.of("step"))


async def test_a_conversation_that_is_opened_again_is_not_told_twice(opened, look, run, tmp_path):
    page = look()
    await press(ReopenRun(run=run))
    await shown_whole(page, tmp_path, run)
    await rested(page)
    kept = {step["id"]: step for step in page.emitter.of("step")}
    await close_server()

    await open_server()
    again = look(id="again")
    await app.come_back({"id": "thread", "steps": list(kept.values()), "elements": []})
    await again.emitter.resume_thread({"id": "thread"})
    await until(lambda: "Take it home" in again.emitter.buttons)
    await rested(again)
    told = [
        step for step in again.emitter.of("step") if step["output"] != kept[step["id"]]["output"]
    ]
    assert told == []


async def test_nothing_is_sent_before_the_page_was_drawn(opened, look, run):
    page = look()
    await press(ReopenRun(run=run))
    await until(lambda: any("as fast as the best" in text for text in texts(page)))
    again = look(id="again")
    await app.come_back({"id": "thread", "steps": [], "elements": []})
    await asyncio.sleep(0.3)
    assert again.emitter.sent == []
    await again.emitter.resume_thread({"id": "thread"})
    assert again.emitter.of("step")


async def test_somebody_elses_run_is_unknown(opened, look, run):
    page = look(thread="other")
    page.session.user = cl.User(identifier="bert")
    await press(ReopenRun(run=run))
    assert not any(run in step["output"] for step in page.emitter.of("step")[1:])
    assert "softmax" not in "".join(texts(page)[1:])


async def test_what_goes_wrong_is_said_in_plain_words(opened, look, monkeypatch):
    page = look()
    view = server_state().view_of("thread", "local")

    async def broken(wish):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(view.controller, "do", broken)
    await press(AskForHelp())
    assert app.BROKEN in texts(page)
    assert not any("secret detail" in text for text in texts(page))


async def test_code_is_put_beside(opened, look):
    page = look()
    view = server_state().view_of("thread", "local")
    await view.screen.add(page)
    await view.say(ChatReply(pieces=(Code(title="kernel", text="int x;", language="cpp"),)))
    await app.put_beside(cl.Action(**page.emitter.buttons["Show beside"]))
    assert page.emitter.of("set_sidebar_title")
    shown = page.emitter.of("set_sidebar_elements")[0]["elements"]
    assert [element["type"] for element in shown] == ["text"]


async def test_files_of_a_message_are_read_as_text(opened, look, tmp_path):
    look()
    path = tmp_path / "module.py"
    path.write_bytes(b"import torch\n\xff")
    message = cl.Message("faster", elements=[File(name="module.py", path=str(path))])
    found = app.attachments_of(message)
    assert [(item.name, item.text[:12]) for item in found] == [("module.py", "import torch")]


async def test_a_conversation_that_nobody_looks_at_and_nothing_runs_in_is_put_away(opened, look):
    view = server_state().view_of("thread", "local")
    await until(lambda: server_state().view_of("thread", "local") is not view, 10)


async def test_starters_are_whole_messages():
    found = await app.starters(None)
    assert all(item.label and item.message for item in found)


async def test_a_figure_that_comes_late_is_put_onto_the_card_that_lies_there(opened, look):
    page = look()
    await app.hear(cl.Message("what can you do?"))
    view = server_state().view_of("thread", "local")
    go = Offer(label="Go", wish=StartSearch())
    asked, late = (
        ChatReply.of(words, go).model_copy(update={"place": "card"})
        for words in ("Not timed yet.", "It takes 3 ms.")
    )
    await view.say(asked)
    card = page.emitter.of("step")[-1]
    await view.amend(late.model_copy(update={"place": "another card"}))
    assert page.emitter.of("step")[-1] == card
    await view.amend(late)
    again = page.emitter.of("step")[-1]
    assert (again["id"], again["createdAt"]) == (card["id"], card["createdAt"])
    assert "3 ms" in again["output"]
    assert [action["label"] for action in page.emitter.buttons.values()] == ["Go"]
    assert kept_offers(view.screen.step(card["id"])) == (go,)

    # What was said since is not written over, and keeps its buttons.
    await view.say(ChatReply.of("Noted.", Offer(label="Show all wishes", wish=ShowSteering())))
    await view.amend(late)
    assert page.emitter.of("step")[-1]["id"] == card["id"]
    assert [action["label"] for action in page.emitter.buttons.values()] == ["Show all wishes"]
    await view.said("Go", "local")
    await view.amend(late)
    assert page.emitter.buttons == {}


async def test_a_search_that_is_over_leaves_no_button_that_pauses_it(opened, look):
    page = look()
    view = server_state().view_of("thread", "local")
    await view.screen.add(page)
    await view.say(ChatReply.of("Explained.", Offer(label="Explain it", wish=AskForHelp())))
    await view.say(
        ChatReply.of(
            "The search has begun.",
            Offer(label="Pause", wish=PauseSearch()),
            Offer(label="Stop", wish=StopSearch()),
        )
    )
    assert len(page.emitter.buttons) == 2
    await until(lambda: page.emitter.buttons == {}, 10)  # nothing runs here
    await view.say(ChatReply.of("Explained.", Offer(label="Explain it", wish=AskForHelp())))
    await asyncio.sleep(1.5)
    assert [action["label"] for action in page.emitter.buttons.values()] == ["Explain it"]
