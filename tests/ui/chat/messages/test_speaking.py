"""What a model says while it says it: the end of it, as text."""

from kernelwright.graphs.run_view.events import Speech
from kernelwright.ui.chat.messages.answers import SHOWN, spoken


def say(text, ended=False):
    speech = Speech(key="coder:1", role="coder", round=1, text=text, ended=ended)
    return spoken("thread", "r", speech)


def test_a_speech_is_one_step_that_grows():
    first, _ = say("I think")
    second, _ = say("I think of lanes")
    assert first["id"] == second["id"]
    assert "coder" in first["name"]
    assert "I think of lanes" in second["output"]


def test_it_is_over_when_it_is_over():
    assert not say("x")[1]
    assert say("x", ended=True)[1]


def test_only_the_end_of_a_long_speech_is_shown():
    step, _ = say("a" * 50_000 + "the end")
    assert "the end" in step["output"]
    assert len(step["output"]) < SHOWN + 50


def test_markup_in_a_speech_is_text():
    step, _ = say("```\n<script>alert(1)</script>")
    assert step["output"].startswith("````\n")
    assert step["output"].endswith("\n````")
