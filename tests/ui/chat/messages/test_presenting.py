"""A run as lines: what everybody said, each in its place, and the same however often it is told."""

import re

from kernelwright.graphs.run_view.events import (
    CandidateJudged,
    CandidateWritten,
    ModelCalled,
    RunStarted,
)
from kernelwright.ui.chat.messages.lines import id_of
from kernelwright.ui.chat.messages.presenting import Presentation

HOSTILE = '<script>alert(1)</script> ![x](http://elsewhere/x) [y](javascript:z) "<b>'


def told(events):
    presentation = Presentation("softmax-0304-abcd")
    for seq, event in enumerate(events, 1):
        presentation.take(seq, event)
    return presentation


def named(presentation, words):
    return next(line for line in presentation.lines.values() if words in line.name)


def test_a_candidate_stands_under_its_idea_and_the_idea_in_its_round(recording):
    run = told(recording().events("r"))
    first = named(run, "v1 by the coder")
    idea = run.lines[first.parent]
    assert idea.name.startswith("Idea 1: keep the row in cache")
    assert run.lines[idea.parent].name.startswith("Round 1")


def test_a_candidate_is_told_with_code_verdict_numbers_and_profile(recording):
    words = named(told(recording().events("r")), "v1").words
    for part in ("```cpp", "softmax_rows", "```python", "LANES", "**Judge**: correct", "1.10x"):
        assert part in words
    assert "far from the roof" in words
    assert "unavailable" in words


def test_a_wrong_candidate_is_marked_and_says_why(recording):
    wrong = named(told(recording().events("r")), "v2")
    assert wrong.failed
    assert "wrong result" in wrong.name
    assert "2.0 for 1.0" in wrong.words


def test_the_planner_and_the_critic_speak_in_their_own_words(recording):
    run = told(recording().events("r"))
    assert "first keep the row in cache" in named(run, "Planner").words
    critic = run.lines["critic:16"]
    assert "wider lanes explain the gap" in critic.words
    assert "v3 beats v1" in critic.words


def test_a_round_is_open_while_it_goes_on_and_closed_with_its_result(recording):
    events = recording().events("r")
    assert told(events[:6]).lines["round:1"].open
    over = told(events).lines["round:1"]
    assert not over.open
    assert over.ended_at is not None
    words = "Round 1: best 8.100 ms (precise), 1.10x the best baseline, not settled"
    assert over.name == words


def test_events_that_are_told_again_change_nothing(recording):
    events = recording().events("r")
    once = told(events)
    again = [once.take(seq, event) for seq, event in enumerate(events[1:5], 2)]
    assert again == [(), (), (), ()]


def test_the_same_run_has_the_same_ids_in_one_conversation_and_others_elsewhere(recording):
    keys = told(recording().events("r")).lines
    mine = {id_of("a", "r", key) for key in keys}
    assert mine == {id_of("a", "r", key) for key in told(recording().events("r")).lines}
    assert not mine & {id_of("b", "r", key) for key in keys}
    assert len(mine) == len(keys)


def test_every_event_of_a_run_is_in_some_line(recording):
    events = recording().events("r")
    presentation = Presentation("r")
    silent = [
        event.kind for seq, event in enumerate(events, 1) if not presentation.take(seq, event)
    ]
    # Who leads is in a candidate's name at once; the end of a run has a card of its own.
    assert set(silent) <= {"best_improved", "run_finished"}


def test_parents_are_told_before_what_stands_in_them(recording):
    seen = set()
    presentation = Presentation("r")
    for seq, event in enumerate(recording().events("r"), 1):
        for line in presentation.take(seq, event):
            assert not line.parent or line.parent in seen
            seen.add(line.key)


def test_a_candidate_of_no_known_idea_stands_in_its_round(recording):
    made = recording()
    presentation = Presentation("r")
    presentation.take(1, CandidateWritten(round=3, candidate=made.first))
    assert presentation.lines[f"candidate:{made.first.id}"].parent == "round:3"


def test_a_verdict_on_nobody_known_is_no_error(recording):
    made = recording()
    judged = next(e for e in made.events("r") if isinstance(e, CandidateJudged))
    assert Presentation("r").take(1, judged) == ()


def test_a_round_that_was_cut_short_does_not_look_as_if_it_went_on(recording):
    events = recording().events("r")
    presentation = told(events[:6])
    presentation.take(7, events[-1])
    assert presentation.lines["round:1"].ended_at is not None


def test_a_resumed_run_says_that_it_goes_on(recording):
    events = recording().events("r")
    again = events[0].model_copy(update={"resumed": True})
    assert isinstance(again, RunStarted)
    run = told([*events[:4], again])
    assert named(run, "The search goes on")
    assert named(run, "The search begins")


def test_a_models_thinking_is_shown_as_text(recording):
    asked = ModelCalled(key="k", role="coder", model="m", round=1, reasoning=HOSTILE)
    line = named(told([asked]), "Coder: asked m")
    assert "script" in line.words
    assert "<script" not in line.words.replace("\\<", "")


def test_nothing_that_others_wrote_is_markup_anywhere(recording):
    made = recording(name=HOSTILE, text=HOSTILE)
    for line in told(made.events("r")).lines.values():
        outside = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", line.words)
        bare = re.sub(r"`[^`]*`", "", re.sub(r"\\.", "", outside))
        assert "<" not in bare
        assert "](" not in bare
        assert "![" not in bare


def test_lines_of_before_say_who_leads_now(recording):
    events = recording().events("r")
    assert "best so far" in named(told(events[:7]), "v1").name
    run = told(events)
    words = "v1 by the coder: 8.100 ms (precise), 1.10x, not settled, led for a time"
    assert named(run, "v1 by").name == words
    words = "(LANES 16): 6.200 ms (precise), 1.44x, not settled, best"
    assert named(run, "v3 by").name.endswith(words)
    assert not any("best so far" in f"{line.name} {line.words}" for line in run.lines.values())
    names = " ".join(line.name for line in run.lines.values())
    assert not any(id in names for id in run.view.candidates)
