"""One view of a run: whatever happens in it, everything that shows it says the same."""

import importlib.util
import io
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given
from rich.console import Console

from kernelwright.agents.assistant.types.pieces import Table
from kernelwright.graphs.conversation import Told
from kernelwright.graphs.conversation.answers import best_words, leaders_of
from kernelwright.graphs.run_view import RunView, fold, folded
from kernelwright.graphs.run_view.charts import roofline, trajectory
from kernelwright.graphs.run_view.events import (
    Awaited,
    CandidateJudged,
    CandidateWritten,
    Event,
    Noted,
    RoundFinished,
    RunFinished,
    milliseconds,
    ratio,
)
from kernelwright.graphs.run_view.figures import summed_up
from kernelwright.graphs.run_view.story import Story
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.archive import RunRecord
from kernelwright.tools.types import (
    Candidate,
    Comparison,
    Effort,
    Evaluation,
    Task,
    Verdict,
    Verification,
)
from kernelwright.ui.chat.messages.presenting import Presentation
from kernelwright.ui.chat.messages.progress import conversation_name, leaders, progress, result
from kernelwright.ui.report.page import render, verdict_rows
from kernelwright.ui.terminal.cards import leader_row, leaderboard, result_card
from kernelwright.ui.terminal.progress import counts, sentence, times
from kernelwright.ui.terminal.trace import sayings


def _made_up() -> ModuleType:
    path = Path(__file__).with_name("made_up_runs.py")
    spec = importlib.util.spec_from_file_location("made_up_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


made_up = _made_up()


def finished(view: RunView) -> RoundFinished:
    return RoundFinished(round=1, best_ms=view.best_ms, elites=1, elapsed_s=1.0, at=made_up.START)


def drawn(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def story(view: RunView, events: list[Event]) -> Story:
    task = Task.model_construct(
        name="softmax", path="softmax.py", entry="Model", inputs=(), bytes_moved=1000, flops=2000
    )
    hardware = hardware_profile("generic CPU")
    record = RunRecord.model_construct(
        id="r", created_at=made_up.START, task=task, hardware=hardware
    )
    return Story(record, Path(), tuple(events), view, (), (), {})


def rows(tables: tuple[Table, ...]) -> list[tuple[str, ...]]:
    return [row for table in tables for row in table.rows]


FIGURES = re.compile(r"([\d.]+ (?:ms|µs|s)) \((screened|precise|certified)\)(?:, ([\d.]+x))?")


def said_figures(words: str) -> set[tuple[str, ...]]:
    """Every time with its label and its ratio, where there is one."""
    return set(FIGURES.findall(words.replace("\\", "")))


def everything_said(events: list[Event]) -> dict[str, str]:
    """What each place says of the best, as words: terminal, chat, trace, report, lists and JSON."""
    view = folded(events)
    presentation = Presentation("r")
    for number, event in enumerate(events, start=1):
        presentation.take(number, event)
    page = progress("thread", "running", view)
    whole = story(view, events)
    best = view.best
    line = presentation.lines[f"candidate:{best.id}"].name if best else ""
    places = {
        "terminal": row_of_best(drawn(times(view)), view),
        "terminal, lines": sentence(made_up.improved(view), view) if best else "",
        "chat": row_of_best(page.words, view),
        "chat, leaders": leaders(view).splitlines()[2] if best else "",
        "chat, candidate": line,
        "answer": best_words(view),
        "leaderboard": " ".join(leader_words(whole)) if best else "",
        "trace": " ".join(w for _, w, _ in sayings(finished(view), view, whole)),
        "chart": chart.best_words if (chart := trajectory(view)) else "",
    }
    if view.summary is not None:
        end = next(e for e in reversed(events) if isinstance(e, RunFinished))
        card = result(Told(run="r", seq=1, event=end), view)
        assert card is not None
        places |= {
            "card": card.words,
            "trace, end": " ".join(w for _, w, _ in sayings(end, view, whole)),
            "terminal, end": sentence(end, view),
            "terminal, card": drawn(result_card(whole)),
            "report": headed(render(whole)),
        }
    return places


def headed(page: str) -> str:
    """What a report says at its head: the headline, and the tiles with the best's figures."""
    tiles = re.search(r'<section class="tiles">(.*?)</section>', page, re.DOTALL)
    head = re.search(r'<p class="headline.*?</p>', page)
    assert tiles is not None
    assert head is not None
    assert "best so far" not in page
    return f"{head[0]} {tiles[1]}"


def row_of_best(shown: str, view: RunView) -> str:
    """The row of the best among those of baselines and floor."""
    begins = (f"{view.best_name} ", f"{view.best_name}**")
    rows = (row.strip("|│*- ") + " " for row in shown.splitlines())
    return next(r for r in rows if r.startswith(begins) and not r.startswith("best baseline"))


def leader_words(whole: Story) -> list[str]:
    """The first row of the terminal's leaderboard, its time and label put together."""
    name, label, time, over, *_ = leader_row(whole, whole.leaders[0])
    ratio_alone = str(over).split(" ")[0]
    return [f"{name} {time} ({label})" + (f", {ratio_alone}" if ratio_alone != "-" else "")]


@given(made_up.SESSIONS)
@example([(made_up.BESIDE_EAGER_ALONE, True)])
def test_there_is_one_best_in_every_place_with_its_time_ratio_and_label(
    sessions: list[tuple[list[Event], bool]],
) -> None:
    events = made_up.searched(sessions)
    view = folded(events)
    best, figure = view.best, view.best_figure
    places = everything_said(events)
    if best is None or figure is None:
        assert "nothing correct yet" in places["terminal"]
        assert "nothing correct yet" in places["chat"]
        assert places["answer"] == "Nothing correct yet."
        assert view.summary is None or view.summary.best is None
        return
    over = ratio(figure.over_best) if figure.over_best else ""
    for place, words in places.items():
        plain_words = words.replace("\\", "")
        assert milliseconds(figure.ms) in plain_words, place
        assert figure.label in plain_words, place
        assert not over or over in plain_words or place in {"chart", "terminal, card"}, place
        here = {item[:2] for item in said_figures(words)}
        assert here <= {(milliseconds(figure.ms), figure.label)}, place
        if view.summary is not None:
            assert "best so far" not in plain_words.lower(), place
    if view.summary is not None:
        written = view.summary.best
        assert written is not None
        assert (written.candidate, written.median_ms) == (best.id, figure.ms)
        assert written.speedup_vs_best_baseline == figure.over_best
        assert written.timed == figure.label
        listed = summed_up(written)
        assert listed.startswith(over)
        assert figure.label == "certified" or figure.label in listed
        named = conversation_name("softmax.py", view)
        assert ("x on" not in named and "x (" not in named) or over in named


@given(made_up.SESSIONS)
def test_no_candidate_has_two_figures_on_a_page_at_rest(
    sessions: list[tuple[list[Event], bool]],
) -> None:
    """Lines that were drawn when less was known say at the end what is in force then."""
    events = made_up.searched(sessions)
    view = folded(events)
    presentation = Presentation("r")
    for number, event in enumerate(events, start=1):
        presentation.take(number, event)
    ended = {event.round for event in events if isinstance(event, RoundFinished)}
    for item in view.candidates.values():
        figure = view.figure_of(item)
        name = presentation.lines[f"candidate:{item.id}"].name
        expected = f"{figure.time}, {ratio(figure.over_best)}" if figure else ""
        assert expected in name
        assert (view.best_name in name) == (item == view.best)
    if view.summary is None:
        return
    for number in ended:
        first = view.best_of(view.of_round(number))
        figure = view.figure_of(first) if first else None
        expected = figure.words if figure else "none correct"
        assert expected in presentation.lines[f"round:{number}"].name


def test_the_certified_figure_is_everywhere_once_a_search_ended() -> None:
    """Seen: best so far 4.222 ms 1.62x, leader 1.937 ms 3.54x and headline 1.42x on one screen."""
    slow, fast = made_up.CANDIDATES[:2]

    def look(of: Candidate, ms: float, effort: Effort, *compared: Comparison) -> CandidateJudged:
        found = Verification(verdict=Verdict.CORRECT, reason="")
        evaluation = Evaluation(
            candidate=of.id,
            verification=found,
            screen=made_up.measurement(ms),
            comparisons=compared,
        )
        return CandidateJudged(evaluation=evaluation, effort=effort)

    events: list[Event] = [
        made_up.baselines(whole=True),
        CandidateWritten(candidate=slow, round=1),
        CandidateWritten(candidate=fast, round=1),
        look(slow, 4.222, "screen"),
        look(fast, 1.937, "precise", made_up.comparison("eager", 1.937, 3.54)),
        RoundFinished(round=1, best_ms=1.937, elites=1, elapsed_s=1.0, why_stop="the end"),
        look(
            slow,
            5.0,
            "certify",
            made_up.comparison("eager", 5.0, 2.0),
            made_up.comparison("compile", 5.0, 1.42),
        ),
    ]
    running = folded(made_up.searched([(events, False)]))
    assert running.best is not None
    assert running.best.id == slow.id
    for place, words in everything_said(made_up.searched([(events, True)])).items():
        assert "5.000 ms" in words.replace("\\", ""), place
        assert "1.42x" in words or place in {"chart"}, place
        assert "4.222" not in words, place
        assert "3.54x" not in words, place


@given(made_up.STREAMS)
def test_the_charts_end_where_everybody_says_the_best_is(stream: list[Event]) -> None:
    events = made_up.told(stream)
    view = folded(events)
    if view.best is None:
        assert not view.leaders
        return
    chart, roof = trajectory(view), roofline(view, hardware_profile("generic CPU"))
    assert chart is not None
    assert chart.best[-1][1] == view.best_ms
    assert roof is not None
    rate = next(point.flops_per_s for point in roof.points if point.kind == "best")
    assert rate == pytest.approx(2e6 / view.best_ms)


@given(made_up.STREAMS)
def test_every_presentation_has_the_same_leaders(stream: list[Event]) -> None:
    events = made_up.told(stream)
    view = folded(events)
    leaders = [item.name for item in view.leaders]
    assert [row[0] for row in rows(leaders_of(view))] == leaders[:5]
    chat = progress("thread", "running", view).words.splitlines()
    listed = [found[1] for line in chat if (found := re.match(r"\| *(v\d+) *\|", line))]
    assert listed == leaders[:5]
    names = [item.name for item in (*view.leaders[:10], *view.apart[:10])]
    shown = drawn(leaderboard(story(view, events)))
    assert re.findall(r"^ (v\d+) ", shown, re.MULTILINE) == names
    assert not any(item.id in shown for item in view.candidates.values())
    assert all(
        item.id in drawn(leaderboard(story(view, events), ids=True)) for item in view.leaders[:1]
    )
    assert [item.number for item in story(view, events).leaders] == [
        int(name[1:]) for name in leaders
    ]


@given(made_up.STREAMS)
def test_every_presentation_counts_alike(stream: list[Event]) -> None:
    events = made_up.told(stream)
    view = folded(events)
    made, judged_ones = view.counts, len(view.standings)
    chat = progress("thread", "running", view)
    noun = "candidate" if made.written == 1 else "candidates"
    assert f"{made.written} {noun}, {made.correct} correct" in chat.words
    assert drawn(counts(view)).startswith(f"{made.written} {noun}  {made.correct} correct")
    assert f"{judged_ones} judged, {made.correct} correct" in sentence(finished(view), view)
    assert sum(number for _, number in verdict_rows(story(view, events))) == judged_ones
    assert dict(verdict_rows(story(view, events))).get("correct", 0) == made.correct
    tasks = next(sheet.content for sheet in chat.sheets if sheet.kind == "tasklist")
    ended = [one for one in json.loads(tasks)["tasks"] if one["status"] == "done" and one["forId"]]
    assert len(ended) == len(view.round_ends)


def test_a_less_trusted_look_changes_nothing() -> None:
    first = made_up.CANDIDATES[0]
    precise = Evaluation(
        candidate=first.id,
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        comparisons=(made_up.comparison("eager", 5.0, 2.0),),
    )
    screened = precise.model_copy(update={"comparisons": (), "screen": made_up.measurement(3.0)})
    view = folded(
        [
            CandidateWritten(candidate=first),
            CandidateJudged(evaluation=precise, effort="precise"),
            CandidateJudged(evaluation=screened, effort="screen"),
        ]
    )
    assert view.best is not None
    assert (view.best_ms, view.best.effort) == (5.0, "precise")


def test_a_resumed_run_has_not_ended() -> None:
    view = folded([made_up.started(), Noted(words="so"), made_up.started(resumed=True)])
    assert view.summary is None
    assert view.stage == "going on where it stopped"
    assert view.notes == ("so",)


def test_somebody_outside_is_waited_for_until_something_happens() -> None:
    waiting = folded([made_up.started(), Awaited(words="answer it"), Noted(words="still")])
    assert waiting.waiting_for == "answer it"
    assert fold(waiting, made_up.started(resumed=True)).waiting_for == ""
