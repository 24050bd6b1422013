"""What a suite's tables say of large models: their regions, and how the best is called."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.graphs.run_view.events import RegionSearched, RegionsFound
from kernelwright.graphs.suite import Outcome, figures
from kernelwright.tools.types.outline import RegionShown
from kernelwright.ui.terminal.suite_tables import Board, row_cells, summary_of

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "h200"


def region(name: str, **changes: object) -> RegionShown:
    given = {"name": name, "words": "", "places": 2, "share": 0.2, "before_ms": 1.0}
    return RegionShown.model_validate({**given, **changes})


USED = region("R1", state="used", run="r1")
SEARCHED = region("R2", state="searched", run="r2")
LATE = region("R3", state="left alone", why="the time was over before its turn")
LEFT = region("conv2d", state="left alone", why="stays with the library")


@pytest.fixture
def plain() -> Outcome:
    """A line of a suite that was run before there were regions in suites."""
    lines = (RESULTS / "kernelbench_level3.jsonl").read_text().splitlines()
    return next(o for o in map(Outcome.model_validate_json, lines) if o.file.startswith("9_"))


@pytest.fixture
def parted(plain: Outcome) -> Outcome:
    assert plain.summary is not None
    assert plain.summary.best is not None
    best = plain.summary.best.model_copy(update={"mode": "graph"})
    changed = {"best": best, "regions": (USED, SEARCHED, LATE, LEFT)}
    return plain.model_copy(update={"summary": plain.summary.model_copy(update=changed)})


def test_a_line_says_which_regions_were_searched_and_in_which_mode_the_best_is_called(
    plain: Outcome, parted: Outcome
) -> None:
    assert parted.regions == (2, 1)
    assert row_cells(parted)[-1].plain.endswith("2 regions, 1 used, as the replay of a CUDA graph")
    assert plain.regions == (0, 0)
    assert plain.terms.regions == "off"
    assert "region" not in row_cells(plain)[-1].plain


def test_the_sums_say_how_many_were_parted_and_how_their_plans_are_called(
    plain: Outcome, parted: Outcome
) -> None:
    found = figures([plain, parted])
    assert (found.parted, found.modes) == (1, (("eager", 1), ("graph", 1)))
    page = StringIO()
    Console(width=200, file=page).print(summary_of([plain, parted]))
    shown = page.getvalue()
    assert "searched region by region: 1" in shown
    assert "called: eager 1, graph 1" in shown


def statuses(board: Board, events: Iterator[object]) -> Iterator[str]:
    hear = board.begin(Path("9_resnet.py"))
    for event in events:
        hear(event)  # type: ignore[arg-type]
        yield board._status()


def test_whoever_watches_sees_how_many_regions_had_their_turn() -> None:
    board = Board(3, (), Console(quiet=True))
    found = RegionsFound(regions=(region("R1"), region("R2"), LEFT))
    turns = [RegionSearched(region=item) for item in (USED, SEARCHED, USED)]
    told = list(statuses(board, iter((found, *turns))))
    assert ["0 of 2 regions" in told[0], "1 of 2 regions" in told[1]] == [True, True]
    assert not any("regions" in words for words in told[2:])
