"""The drawings: Plotly takes them as they are, and they show what was measured."""

import json
from dataclasses import replace

import plotly.io
import pytest

from kernelwright.agents.assistant.types.pieces import Picture
from kernelwright.graphs.run_view import RunView, folded
from kernelwright.ui.chat.messages.plots import picture, roofline, trajectory


@pytest.fixture
def view(recording):
    return folded(recording().events("r"))


def names(drawing):
    return [trace["name"] for trace in json.loads(drawing)["data"]]


def valid(drawing):
    """Plotly's own library checks every property that it is given."""
    parts = json.loads(drawing)
    parts.pop("config")
    return plotly.io.from_json(json.dumps(parts))


def test_the_trajectory_has_baselines_floor_candidates_and_the_best(view):
    drawing = trajectory(view)
    valid(drawing)
    assert names(drawing) == [
        "eager 12.4 ms",
        "compile 8.900 ms",
        "floor 3.100 ms",
        "candidates",
        "best 6.200 ms (precise)",
    ]


def test_the_best_so_far_only_ever_falls(view):
    best = json.loads(trajectory(view))["data"][-1]
    assert best["y"] == sorted(best["y"], reverse=True)
    assert best["x"] == sorted(best["x"])


def test_there_is_no_drawing_of_nothing(recording):
    assert trajectory(RunView()) == ""
    view = folded(recording().events("r"))
    assert roofline(replace(view, flops=0), recording().hardware) == ""


def test_the_roofline_has_the_roof_the_baselines_and_the_best(view, recording):
    drawing = roofline(view, recording().hardware)
    valid(drawing)
    assert [name.split(":")[0] for name in names(drawing)] == ["roof", "eager", "compile", "best"]


def test_an_ideas_title_is_no_tag_in_a_drawing(recording):
    drawing = trajectory(folded(recording(text="<a href='http://x'>y</a>").events("r")))
    assert "<a" not in drawing


@pytest.mark.parametrize("what", ["trajectory", "roofline"])
async def test_a_drawing_that_was_asked_for_is_made_from_the_archive(what, look, home, run):
    look()
    element = await picture("thread", home, Picture(what=what, run=run))
    assert element is not None
    assert json.loads(element.content)["data"]


async def test_a_drawing_of_an_unview_run_is_none(look, home, run):
    look()
    assert await picture("thread", home, Picture(what="roofline", run="nobody")) is None
