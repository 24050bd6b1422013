"""Cards and tale of a run."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import IdeasProposed
from kernelwright.tools.archive import Archive, UnknownRunError
from kernelwright.tools.types import Analysis, Prediction
from kernelwright.ui.terminal.cards import comparison_rows, show
from kernelwright.ui.terminal.output import prediction_words, record_words
from kernelwright.ui.terminal.progress import sentence
from kernelwright.ui.terminal.trace import trace


def text_of(printer, story, width=140):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    printer(story, console)
    return console.file.getvalue()


def test_show_has_task_result_leaders_and_ideas(run, home):
    said = text_of(show, stories.load(run, home))
    for words in (
        "2048 x 2048 float32",
        "33.6 MB, 21 MFLOP",
        "1.44x as fast as the best baseline",
        "vs compile",
        "1.44x, 95 % interval 1.36 to 1.53, not settled (6.200 ms against 8.900 ms, 36 pairs)",
        "6.200 ms",
        "50% of the floor",
        "BackendCompilerFailed",
        "3 written, 3 compiled, 2 correct, 2 timed, in 2 rounds and 10 s",
        "far from the roof: 38 % of bandwidth",
        "counters: perf is not allowed",
        "leaderboard",
        "LANES 16",
        "wider lanes",
    ):
        assert words in said, said


def test_what_was_not_timed_in_turns_has_no_interval_that_its_words_deny():
    best = SimpleNamespace(speedup_vs_best_baseline=14.9, ci95=(7.4, 19.7))
    assert comparison_rows(SimpleNamespace(best=None), best) == [
        ("", "14.90x the best baseline, not timed in turns: 7.40 to 19.70 by how far both vary")
    ]


def test_the_leaderboard_is_ordered_by_time(run, home):
    story = stories.load(run, home)
    assert [item.evaluation.median_ms for item in story.leaders] == [6.2, 8.1]


def test_an_unfinished_run_says_how_to_go_on(recording, home):
    run = recording().archive(home, finished=False)
    assert f"kernelwright resume {run}" in text_of(show, stories.load(run, home))
    assert "new best" in text_of(trace, stories.load(run, home))


def test_trace_says_who_said_what_when_and_why(run, home):
    said = text_of(trace, stories.load(run, home))
    for who in ("planner", "coder", "tuner", "judge", "profiler", "critic", "search"):
        assert re.search(rf"^ +\d+\.\d s  {who} ", said, re.MULTILINE), who
    for words in (
        "first keep the row in cache",
        "predicts 5.000 ms; watch bandwidth",
        "against compile: 1.44x, 95 % interval 1.36 to 1.53, not settled, 36 pairs",
        "wrong result: 2.0 for 1.0",
        "bandwidth_fraction: 0.38",
        "counters: unavailable (perf is not allowed)",
        "earlier predictions: 1 of 1 held",
        "could not run: BackendCompilerFailed",
    ):
        assert words in said, said


def test_markup_and_control_characters_in_names_stay_text(recording, home):
    hostile = "[bold]x[/bold] \x1b[31m [/] <b>"
    run = recording(text=hostile).archive(home)
    for printer in (show, trace):
        said = text_of(printer, stories.load(run, home))
        assert "[bold]x[/bold]" in said
        assert "\x1b" not in said


def test_a_run_can_be_named_by_its_beginning_or_folder(run, home):
    assert stories.load(run[:9], home).record.id == run
    assert stories.load(str(home / "runs" / run)).record.id == run
    with pytest.raises(UnknownRunError):
        stories.load("nothing", home)


def test_doubt_about_the_timings_stands_before_what_bounds_the_best(recording, home, busy):
    run = recording().archive(home)
    archive = Archive.open(run, home)
    first = archive.candidates()[0].candidate.id
    doubt = busy(first)
    archive.append_event(doubt.kind, doubt.round, doubt.model_dump_json())
    archive.close()
    story = stories.load(run, home)
    said = " ".join(text_of(show, story).split())
    assert "the machine is busy, and times say little" in said
    assert said.index("the machine is busy") < said.index("bounded by")
    assert "v1: 4 times a call a thread lost its core" in text_of(trace, story)
    assert sentence(doubt, story.view).startswith("profiler: v1: 4 times a call")


def test_a_score_says_what_stayed_undecided():
    analysis = Analysis(
        round=2, claims=(), implies="", predictions_held=1, predictions_checked=2,
        predictions_undecided=3,
    )  # fmt: skip
    assert record_words(analysis) == "1 of 2 held, 3 undecided, within the noise"
    made = Prediction(words="w", attribute="a", value="b", below_ms=1.0, made_in_round=1)
    assert prediction_words(made) == "predicts: w"
    answered = made.model_copy(update={"measured_ms": 0.98})
    assert "undecided, within the noise" in prediction_words(answered)


def test_a_round_without_ideas_says_why(run, home):
    none = IdeasProposed(round=1, ideas=(), reasoning="PyTorch's library does all of it.")
    told = sentence(none, stories.load(run, home).view)
    assert told == "round 1: 0 ideas: PyTorch's library does all of it."
