"""Progress: the view of a run, drawn live or told in lines."""

import io

from rich.console import Console

from kernelwright.graphs.run_view import RunView, fold, folded
from kernelwright.graphs.run_view.events import CandidateJudged, RunStarted
from kernelwright.tools.types import Verdict
from kernelwright.ui.terminal.progress import LiveProgress, PlainProgress, watcher


def whole(recording):
    return folded(recording().events("softmax-0304-abcd"))


def drawn(view):
    progress = LiveProgress(io.StringIO())
    progress.view = view
    console = Console(file=io.StringIO(), width=120)
    console.print(progress._draw())
    return console.file.getvalue()


def test_the_view_knows_best_baseline_floor_and_counts(recording):
    view = whole(recording)
    assert view.best_ms == 6.2
    assert view.title(view.best.candidate.idea) == "wider lanes"
    assert view.best_baseline_ms == 8.9
    assert view.eager_ms == 12.4
    assert view.floor_ms == 3.1
    assert view.by_verdict == {Verdict.CORRECT: 2, Verdict.WRONG_RESULT: 1}
    assert view.counts.written == 3
    assert view.round == 2
    assert view.elapsed_s > 9


def test_a_candidate_that_is_judged_twice_counts_once(recording):
    events = recording().events("r")
    judged = next(event for event in events if isinstance(event, CandidateJudged))
    view = folded((*events[:4], judged, judged))
    assert view.by_verdict == {Verdict.CORRECT: 1}


def test_every_prefix_of_a_run_can_be_drawn(recording):
    view = RunView()
    assert "reading the task" in drawn(view)
    for event in recording().events("r"):
        view = fold(view, event)
        assert "best baseline" in drawn(view)


def test_the_panel_says_how_the_search_stands(recording):
    panel = drawn(whole(recording))
    for words in ("6.200 ms", "8.900 ms", "12.4 ms", "3.100 ms", "1.44x the best baseline"):
        assert words in panel, panel
    assert "3 candidates" in panel
    assert "1 wrong result" in panel
    assert "50% of the floor" in panel


def test_bars_are_to_one_scale(recording):
    lines = drawn(whole(recording)).splitlines()
    bars = {
        name: next(line for line in lines if line.strip("│ ").startswith(name)).count("━")
        for name in ("eager", "best  ", "floor")
    }
    assert bars["eager"] == 20
    assert bars["best  "] == 10
    assert bars["floor"] == 5


def test_lines_tell_the_story_without_a_terminal(recording):
    stream = io.StringIO()
    with PlainProgress(stream) as view:
        for event in recording().events("r"):
            view.show(event)
    said = stream.getvalue()
    assert "baselines: eager 12.4 ms, compile 8.900 ms, max-autotune could not run" in said
    assert (
        "best so far v3 6.200 ms (precise), 1.44x the best baseline, not settled, 50% of the floor"
        in said
    )
    assert "round 2 done: 3 judged, 2 correct; stopping: nothing improved" in said
    assert "\x1b" not in said


def test_control_characters_never_reach_the_terminal(recording):
    text = "clear \x1b[2J the screen \u202e backwards"
    stream = io.StringIO()
    with PlainProgress(stream) as view:
        for event in recording(text=text).events("r"):
            view.show(event)
    assert "\x1b" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()


def test_a_resumed_run_says_so(recording):
    begun = recording().events("r")[0]
    assert isinstance(begun, RunStarted)
    view = folded([begun.model_copy(update={"resumed": True})])
    assert view.stage == "going on where it stopped"


def test_the_stream_decides_how_progress_is_shown():
    assert isinstance(watcher(io.StringIO()), PlainProgress)


def test_live_progress_leaves_the_terminal_as_it_was(recording):
    stream = io.StringIO()
    view = LiveProgress(stream)
    with view:
        for event in recording().events("r"):
            view.show(event)
    assert not view._live.is_started
    assert "a worker was replaced" in stream.getvalue()


def test_a_resumed_search_goes_on_counting(recording, home):
    kept = recording()
    events = kept.events(kept.archive(home))
    judged = sum(isinstance(event, CandidateJudged) for event in events)
    progress = PlainProgress(io.StringIO())
    progress.recall(events)
    view = progress.view
    assert view.standings
    assert sum(view.by_verdict.values()) == len(view.standings) <= judged
    assert view.elapsed_s == 0.0
    assert view.summary is None


def test_the_panel_says_first_what_the_profiler_found_most_important(recording, busy):
    events = recording().events("r")
    told = next(event for event in events if event.kind == "profiled")
    panel = " ".join(drawn(folded((*events, busy(told.candidate)))).split())
    assert panel.index("the machine is busy") < panel.index("best baseline")
