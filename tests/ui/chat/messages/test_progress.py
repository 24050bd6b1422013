"""The message of a search that goes on, its list of tasks, and the card of its end."""

import json
from dataclasses import replace

import pytest

from kernelwright.graphs.conversation import Told
from kernelwright.graphs.run_view import folded
from kernelwright.graphs.run_view.events import RunFinished
from kernelwright.ui.chat.messages.progress import conversation_name, progress, result


def line(events, state="running"):
    return progress("thread", state, folded(events))


def labels(shown):
    return [button.label for button in shown.buttons]


def tasks(shown):
    content = next(sheet.content for sheet in shown.sheets if sheet.kind == "tasklist")
    return json.loads(content)


def test_it_says_times_leaders_and_effort(recording):
    words = line(recording().events("r")[:-1]).words
    for part in ("12.4 ms", "8.900 ms", "6.200 ms", "1.44x the best baseline", "50%", "v3"):
        assert part in words
    assert "3 candidates, 2 correct" in words


@pytest.mark.parametrize(("ahead", "words"), [(1, "another person's work is"), (3, "3 others")])
def test_a_search_that_waits_for_the_device_says_so(recording, ahead, words):
    view = folded(recording().events("r")[:-1])
    assert words in progress("thread", "running", view, ahead=ahead).words
    assert "waits" not in progress("thread", "running", view).words


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("running", ["Pause", "Stop", "Export"]),
        ("pausing", ["Stop", "Export"]),
        ("stopping", ["Export"]),
        ("resting", ["Continue", "Export", "Report"]),
    ],
)
def test_what_can_be_done_about_it_follows_its_state(recording, state, expected):
    assert labels(line(recording().events("r")[:-1], state)) == expected


def test_what_comes_before_the_first_round_is_in_none(recording):
    events = recording().events("r")
    begun = next(n for n, event in enumerate(events) if event.round == 1) + 1
    assert "is before its first round, " in line(events[:2]).words
    assert "is in round 1, " in line(events[:begun]).words


def test_there_is_nothing_to_export_before_anything_is_correct(recording):
    assert labels(line(recording().events("r")[:3])) == ["Pause", "Stop"]


def test_every_prefix_of_a_run_can_be_shown(recording):
    events = recording().events("r")
    for end in range(1, len(events) + 1):
        for state in ("running", "resting"):
            assert line(events[:end], state).words


def test_tasks_are_rounds_and_the_stage_of_the_present_one(recording):
    found = tasks(line(recording().events("r")[:12]))
    assert found["status"] == "Searching"
    titles = [(task["title"], task["status"]) for task in found["tasks"]]
    assert titles[0] == ("Time PyTorch itself", "done")
    assert titles[1] == ("Round 1: 8.100 ms (precise), 1.10x, not settled", "done")
    assert titles[2][0].startswith("Round 2: ")
    assert titles[2][1] == "running"


def test_nothing_is_running_in_a_search_that_rests(recording):
    found = tasks(line(recording().events("r"), "resting"))
    assert all(task["status"] == "done" for task in found["tasks"])


def test_the_card_says_by_how_much_how_sure_and_what_was_not_verified(recording):
    events = recording().events("r")
    view = folded(events)
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    card = result(Told(run="r", seq=18, event=finished), view)
    for part in (
        "1.44x as fast as the best baseline",
        "against eager",
        "2.00x, 95 % interval 1.92 to 2.09",
        "against compile",
        "of the floor",
        "50%",
        "fp32",
        "own kernels",
        "**Not verified**: denormal inputs",
        "v3",
    ):
        assert part in card.words
    assert labels(card) == ["Take it home", "Report", "Explain the best", "Continue"]


def test_a_search_without_a_result_has_nothing_to_take_home(recording):
    events = recording().events("r")
    view = folded(events[:3])
    nothing = events[-1].summary.model_copy(update={"status": "nothing_correct", "best": None})
    card = result(Told(run="r", seq=4, event=RunFinished(summary=nothing)), view)
    assert "No candidate was correct" in card.words
    assert labels(card) == ["Report", "Continue"]


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("paused", "It is paused and can go on."),
        ("you asked", "It ended because you asked."),
    ],
)
def test_the_card_says_why_there_is_no_verdict(recording, why, words):
    events = recording().events("r")
    ended = events[-1].summary.model_copy(update={"status": "stopped", "stopped_because": why})
    card = result(Told(run="r", seq=4, event=RunFinished(summary=ended)), folded(events[:3]))
    assert words in card.words


def test_a_hostile_name_is_only_a_name(recording):
    hostile = recording(name="<img src=x onerror=alert(1)>", text="![a](http://b)")
    words = line(hostile.events("r")).words
    assert "<img" not in words.replace("\\<", "")
    assert "](" not in words.replace("\\]", "").replace("\\(", "")


def test_the_roofline_is_there_while_the_search_goes_on(recording):
    made = recording()
    view = folded(made.events("r")[:-1])
    names = [sheet.name for sheet in progress("thread", "running", view).sheets]
    assert names == ["trajectory", "tasks"]
    shown = progress("thread", "running", view, made.hardware)
    roof = next(sheet for sheet in shown.sheets if sheet.name == "roofline")
    drawn = json.loads(roof.content)["data"]
    assert {"roof"} < {trace["name"].split(":")[0] for trace in drawn}


def test_the_profilers_most_important_sentence_stands_in_both_cards(recording, busy):
    events = recording().events("r")
    told = next(event for event in events if event.kind == "profiled")
    assert "**Profiler**: v1\\: 38 % of bandwidth." in line(events[:-1]).words
    doubted = (*events[:-1], busy(told.candidate), events[-1])
    said = (
        "v1\\: 4 times a call a thread lost its core\\: the machine is busy, and times say little."
    )
    assert f"**Profiler**: {said}" in line(doubted[:-1]).words
    card = result(Told(run="r", seq=99, event=doubted[-1]), folded(doubted))
    assert said in card.words
    # Before the figures that it casts doubt on.
    assert card.words.index("the machine is busy") < card.words.index("written")


@pytest.mark.parametrize(
    ("file", "end", "name"),
    [
        ("softmax.py", 0, "softmax.py"),
        ("softmax.py", 7, "softmax.py on Test"),
        ("softmax.py", None, "softmax.py: 1.44x (precise, not settled) on Test"),
        ("", None, ""),
    ],
)
def test_a_conversation_is_named_by_its_file_and_by_what_came_of_it(recording, file, end, name):
    events = recording().events("r")
    assert conversation_name(file, folded(events[:end])) == name


def test_a_conversation_says_when_nothing_was_faster(recording):
    view = folded(recording().events("r"))
    slower = view.summary.model_copy(update={"status": "no_improvement"})
    assert conversation_name("a.py", replace(view, summary=slower)) == "a.py: not faster on Test"


def test_a_result_that_settled_nothing_offers_to_be_measured_again(recording):
    events = recording().events("r")
    done = events[-1]
    unsettled = done.model_copy(
        update={"summary": done.summary.model_copy(update={"status": "not_settled"})}
    )
    view = folded((*events[:-1], unsettled))
    card = result(Told(run="r", seq=99, event=unsettled), view)
    assert card.buttons[0].label == "Measure again"
    assert card.words.startswith("**Not settled: measure again (")
    settled = result(Told(run="r", seq=99, event=done), folded(events))
    assert "Measure again" not in [button.label for button in settled.buttons]
