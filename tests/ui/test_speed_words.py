"""Every screen says the same of a verdict on speed, and none says two things at once."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.graphs.conversation import Told
from kernelwright.graphs.conversation.about import claim_words as chat_claim
from kernelwright.graphs.conversation.answers import best_words
from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import RunFinished
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.search.summary import material_of
from kernelwright.tools.archive import Archive, list_runs
from kernelwright.tools.export.evidence import verification
from kernelwright.tools.types import Effort
from kernelwright.ui.chat.messages.progress import conversation_name, progress, result
from kernelwright.ui.cli.data.runs import run_cells
from kernelwright.ui.report.page import render
from kernelwright.ui.terminal.cards import show
from kernelwright.ui.terminal.progress import sentence
from kernelwright.ui.terminal.trace import trace

# How the best of a run came out: its milliseconds beside 8.9 of torch.compile, half the width of
# the interval, and how closely it was looked at.
ENDS: dict[str, tuple[float, float, Effort]] = {
    "certified": (6.2, 0.02, "certify"),
    "not settled": (6.2, 0.3, "certify"),
    "not certified": (6.2, 0.02, "precise"),
    "no faster": (8.9, 0.02, "certify"),
    "slower": (9.9, 0.02, "certify"),
}
NOT_FASTER = ("nothing was faster", "is not faster", "not shown to be faster", ": not faster")
FASTER = ("as fast as the best baseline (certified)", "it is faster than every", "It is faster")


def printed(printer: Callable[[Story, Console], None], story: Story) -> str:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    printer(story, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def screens(run: str, home: Path) -> dict[str, str]:
    """What each place says of a run's end."""
    story = stories.load(run, home)
    view = story.view
    ended = story.events[-1]
    assert isinstance(ended, RunFinished)
    card = result(Told(run=run, seq=1, event=ended), view)
    assert card is not None
    assert story.best is not None
    archive = Archive.open(run, home)
    try:
        exported = verification(material_of(archive, forced=True))
    finally:
        archive.close()
    (listed,) = list_runs(home)
    return {
        "show": printed(show, story),
        "trace": printed(trace, story).splitlines()[-1],
        "last line": sentence(ended, view),
        "report": render(story),
        "VERIFICATION.md": exported,
        "list of runs": ", ".join(run_cells(listed)[-2:]),
        "chat, card": card.words,
        "chat, progress": progress("thread", "resting", view).words,
        "chat, status": f"Result: {view.headline}. {best_words(view)}",
        "chat, why": chat_claim(story.best),
        "chat, name": conversation_name("softmax.py", view),
    }


def told(recording: Callable[..., object], home: Path, end: str) -> dict[str, str]:
    best_ms, unsure, effort = ENDS[end]
    made = recording(best_ms=best_ms, unsure=unsure, effort=effort)
    return screens(made.archive(home), home)  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", ENDS)
def test_no_screen_says_faster_and_not_faster_at_once(
    recording: Callable[..., object], home: Path, end: str
) -> None:
    for place, words in told(recording, home, end).items():
        both = [said for said in (*NOT_FASTER, *FASTER) if said in words]
        assert {said in NOT_FASTER for said in both} != {True, False}, (place, both)


def test_what_is_certified_as_faster_is_in_doubt_nowhere(
    recording: Callable[..., object], home: Path
) -> None:
    for place, whole in told(recording, home, "certified").items():
        # Others of a list of leaders may be in doubt.
        words = whole.split("leader")[0]
        assert not any(said in words for said in (*NOT_FASTER, "not settled")), place


@pytest.mark.parametrize("end", ["not settled", "not certified"])
def test_what_is_not_settled_is_called_so_everywhere_and_neither_faster_nor_not(
    recording: Callable[..., object], home: Path, end: str
) -> None:
    for place, words in told(recording, home, end).items():
        assert not any(said in words for said in (*NOT_FASTER, *FASTER[:1], *FASTER[2:])), place
        if end == "not settled":
            assert "it is faster" not in words.lower(), place
            assert "not settled" in words or "interval beside compile is" in words, place
        elif place != "chat, why":
            assert "not settled" in words.lower(), place
        if end == "not certified" and place != "chat, name":
            assert "certified" in words or "precise" in words, place


@pytest.mark.parametrize(("end", "why"), [("no faster", "no faster than"), ("slower", "slower")])
def test_what_is_not_faster_is_called_so_with_the_reason(
    recording: Callable[..., object], home: Path, end: str, why: str
) -> None:
    words = told(recording, home, end)
    for place in ("show", "report", "chat, card", "chat, status", "list of runs"):
        assert any(said in words[place] for said in (*NOT_FASTER, "but not than its")), place
    for place in ("last line", "chat, progress"):
        assert "; not faster" in words[place] or "; faster than eager only" in words[place], place
    for place in ("show", "report", "chat, card", "chat, status", "VERIFICATION.md", "chat, why"):
        assert f"{why} compile" in words[place] or f"{why} than compile" in words[place], place


def test_an_export_by_force_says_in_its_table_what_its_headline_says(
    recording: Callable[..., object], home: Path
) -> None:
    words = told(recording, home, "not settled")["VERIFICATION.md"]
    assert "how fast it is beside PyTorch is not settled: its 95 % interval beside" in words
    rows = [line for line in words.splitlines() if line.startswith(("| eager", "| compile"))]
    assert [row.split("|")[-2].strip() for row in rows] == ["not settled", "not settled"]


def test_an_export_of_what_was_not_certified_says_that(
    recording: Callable[..., object], home: Path
) -> None:
    words = told(recording, home, "not certified")["VERIFICATION.md"]
    assert "how fast it is beside PyTorch is not settled: it was not certified" in words
    assert "A certification would have verified and timed it once more" in words
    assert "certif" not in told(recording, home.parent / "other", "certified")["VERIFICATION.md"]
