"""Answers as messages: every kind of piece, buttons that come back, and nothing that does harm."""

import pytest

from kernelwright.agents.assistant.types import (
    CancelTask,
    ChatReply,
    Offer,
    PauseSearch,
    StartSearch,
    Steer,
)
from kernelwright.agents.assistant.types.pieces import Code, Download, Picture, Table, Words
from kernelwright.ui.chat.messages.answers import (
    actions_of,
    kept_offers,
    message,
    note_of,
    without_offers,
)
from kernelwright.ui.chat.messages.elements import command_of

GO = Offer(label="Go", wish=StartSearch(search="quick"), hint="Up to 15 s")
CANCEL = Offer(label="Cancel", wish=CancelTask())


def note(*pieces, offers=()):
    return note_of("thread", ChatReply(pieces=pieces, offers=offers), "Kernelwright")


def test_words_code_and_tables_stand_in_the_message_in_their_order():
    shown = note(
        Words(text="It is **here**:"),
        Code(title="kernel", text="int x;", language="cpp"),
        Table(title="leaders", columns=("a", "b"), rows=(("1", "2"),)),
    ).step
    assert shown["output"] == (
        "It is **here**:\n\n**kernel**\n\n```cpp\nint x;\n```\n\n"
        "**leaders**\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    assert shown["type"] == "assistant_message"


def test_downloads_are_files_and_pictures_are_left_to_be_drawn(tmp_path):
    path = tmp_path / "export.zip"
    path.write_bytes(b"PK")
    shown = note(
        Download(path=path, name="export.zip", mime="application/zip"),
        Picture(what="roofline", run="r"),
    )
    assert [(file.name, file.mime) for file in shown.files] == [("export.zip", "application/zip")]
    assert [picture.what for picture in shown.pictures] == ["roofline"]
    assert shown.step["output"]


def test_a_button_stands_for_its_wish():
    first, second = note(Words(text="?"), offers=(GO, CANCEL)).actions
    assert (first.label, first.tooltip, first.icon) == ("Go", "Up to 15 s", "play")
    assert command_of(first) == StartSearch(search="quick")
    assert command_of(second) == CancelTask()


def test_orders_to_a_search_leave_no_words_of_the_persons():
    pause = Offer(label="Pause", wish=PauseSearch())
    steer = Offer(label="Take back", wish=Steer(forget=("x",)))
    first, second = note(Words(text="?"), offers=(pause, steer)).actions
    assert first.payload["quiet"]
    assert not second.payload["quiet"]


@pytest.mark.parametrize(
    "payload", [{}, {"wish": "{}"}, {"wish": "no json"}, {"wish": {"kind": "go"}}, {"wish": 3}]
)
def test_what_is_no_wish_is_none(payload):
    action = note(Words(text="?"), offers=(GO,)).actions[0]
    action.payload = payload
    assert command_of(action) is None


def test_a_kept_message_gets_the_same_buttons_back():
    shown = note(Words(text="?"), offers=(GO, CANCEL))
    offers = kept_offers(shown.step)
    assert offers == (GO, CANCEL)
    assert actions_of(shown.step["id"], offers) == shown.actions


def test_an_answered_question_has_no_buttons_and_the_same_words():
    shown = note(Words(text="Shall I?"), offers=(GO,)).step
    bare = without_offers(shown)
    assert kept_offers(bare) == ()
    assert bare["output"] == shown["output"]


def test_buttons_of_another_version_are_left_out():
    shown = message("thread", "id", "?", "Kernelwright")
    shown["metadata"] = {"offers": ["{}", '{"label": "x", "wish": {"kind": "gone"}}', 7]}
    assert kept_offers(shown) == ()


def test_code_can_be_shown_beside():
    shown = note(Code(title="kernel", text="int x;", language="cpp"))
    assert [action.label for action in shown.actions] == ["Show beside"]


def test_what_others_wrote_cannot_leave_its_place():
    hostile = "```\n<script>alert(1)</script>\n![x](http://elsewhere/x)\n```"
    shown = note(
        Code(title=hostile, text=hostile, language="python\n<b>"),
        Table(title=hostile, columns=("name",), rows=((hostile,),)),
    ).step["output"]
    head, code, *rest = shown.split("````")
    assert "<script>" in code
    for part in (head, *rest):
        assert "<script" not in part.replace("\\<", "")
        assert "![" not in part.replace("\\!", "")
