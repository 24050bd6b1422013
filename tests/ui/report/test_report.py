"""The page about a run: well-formed, self-contained, with the numbers, and harmless."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.charts import (
    Axis,
    Level,
    RatePoint,
    Roof,
    Roofline,
    TimedDot,
    Trajectory,
    around,
)
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.types import Badge, Doubt
from kernelwright.ui.report import render, write
from kernelwright.ui.report.charts import Scale, roofline, trajectory

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Checker(HTMLParser):
    """Follows tags and fails where they do not close in order."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.tags = []
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *item) for item in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.open)


def checked(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open
    return checker


def test_it_is_well_formed_and_asks_the_internet_for_nothing(run, home):
    page = render(stories.load(run, home))
    checker = checked(page)
    assert not {"script", "link", "img", "iframe"} & set(checker.tags)
    assert not re.search(r"https?://|url\(|@import", page)
    assert "default-src 'none'" in page


def test_the_numbers_are_on_the_page(run, home):
    story = stories.load(run, home)
    page = render(story)
    for words in (
        "6.200 ms",
        "12.4 ms",
        "8.900 ms",
        "1.44x",
        "1.35 to 1.52",
        "50%",
        "1.355 to 1.525",
        "heavy_tail",
        "1.10e-07",
        "denormal inputs",
        "load average of the machine",
        "wider lanes",
        "LANES=16",
        "held",
        "1 of 1 checked predictions held",
        "far from the roof",
        story.best.candidate.id,
    ):
        assert words in page, words


def test_every_rule_of_the_judge_is_printed_and_a_missing_defence_is_loud(run, home):
    story = stories.load(run, home)
    page = render(story)
    for name in Rules.model_fields:
        if name != "switched_off":
            assert f"<td>{name.replace('_', ' ')}</td>" in page
    assert "No defence was switched off" in page
    off = replace(story, rules=Rules(switched_off=(Defence.POISON, Defence.FLOOR)))
    page = render(off)
    checked(page)
    assert "Switched off: poison, floor." in page
    assert "The judge ran without poison, floor" in page


def test_findings_stand_on_the_page_and_long_lists_are_folded(run, home):
    story = stories.load(run, home)
    many = tuple(f"gap {number}" for number in range(20))
    found = story.best.evaluation.verification.model_copy(
        update={
            "allclose_1e4": False, "allclose_1e2": True, "not_verified": many,
            "shapes": "shape-generic, verified on one row",
        }
    )  # fmt: skip
    evaluation = story.best.evaluation.model_copy(update={"verification": found})
    best = story.view.best.judged(evaluation, "certify", story.view.latest)
    view = replace(story.view, candidates={**story.view.candidates, best.id: best})
    page = render(replace(story, view=view))
    checked(page)
    for words in ("NO at 1e-04", "shape-generic, verified on one row", "gap 19", ">faster<"):
        assert words in page
    assert "<summary>20 things</summary>" in page


def test_badges_stand_with_their_reasons_and_what_they_cost(run, home):
    story = stories.load(run, home)
    badges = (
        Badge(name=Doubt.CONSTANT, reason="every element is 0"),
        Badge(name=Doubt.UPDATES_BUFFERS, reason="running_mean"),
    )
    task = story.record.task.model_copy(
        update={"badges": badges, "warnings": tuple(badge.words for badge in badges)}
    )
    record = story.record.model_copy(update={"task": task})
    page = render(replace(story, record=record, events=()))
    checked(page)
    assert "<b>constant</b>: every element is 0 A speed-up over this task proves little." in page
    assert page.count("running_mean") == 1
    assert "<b>updates buffers</b>: running_mean</p>" in page


def test_source_plan_and_difference_are_coloured(run, home):
    page = render(stories.load(run, home))
    assert "softmax_rows" in page
    assert '<span class="k">def</span>' in page
    assert "What changed since" in page
    assert "// LANES = 8" in page
    assert "// LANES = 16" in page


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</style><svg onload=alert(1)>",
        "{{ 7 * 7 }} {% raw %} & <!--",
        "\x00\x1b[2J\u202e",
    ],
)
def test_hostile_names_stay_text(recording, home, hostile):
    kept = recording(name=hostile, text=hostile)
    run = kept.archive(home)
    page = render(stories.load(run, home))
    checker = checked(page)
    assert not {"script", "img"} & set(checker.tags)
    assert not [a for a in checker.attributes if a[1].startswith("on") or a[1] == "src"]
    assert page.count("<style>") == page.count("</style>") == 1
    assert "\x00" not in page
    assert "\x1b" not in page


def test_an_unfinished_run_has_a_page_too(recording, home):
    run = recording().archive(home, finished=False)
    page = render(stories.load(run, home))
    checked(page)
    assert "not finished yet" in page


def test_both_schemes_are_there(run, home):
    page = render(stories.load(run, home))
    assert "prefers-color-scheme: dark" in page
    assert "color-scheme: light dark" in page


def test_it_is_written_where_asked(run, home, tmp_path):
    path = write(stories.load(run, home), tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def made_trajectory(levels, best=()):
    dots = tuple(TimedDot(at_s, ms, f"c{at_s}") for at_s, ms in best)
    time = Axis("time", 0.5, 20.0)
    seconds = Axis("seconds", 0.0, 10.0, logarithmic=False)
    return Trajectory(dots, tuple(best), tuple(levels), (), 10.0, seconds, time)


def made_roofline(roofs, points, source=""):
    axes = Axis("FLOP per byte", 0.05, 500.0), Axis("FLOP/s", 1e9, 1e14)
    return Roofline(0.5, 5e10, tuple(roofs), tuple(points), source, *axes)


PEAK = Roof("peak", ((0.05, 5e9), (10.0, 1e12), (500.0, 1e12)))


def test_the_step_follows_the_best():
    picture = trajectory(made_trajectory([], [(0.0, 9.0), (1.0, 7.0), (3.0, 5.0)]))
    path = re.search(r'class="best" d="([^"]+)"', picture).group(1)
    heights = [float(y) for y in re.findall(r"(?:,|V)(\d+\.?\d*)", path)]
    assert len(heights) == 3
    assert heights == sorted(heights)  # down the page is faster


def test_nothing_is_drawn_of_nothing():
    assert trajectory(None) == roofline(None) == ""


def test_labels_do_not_lie_on_each_other():
    lines = [Level("eager", 5.0, "baseline"), Level("compile", 5.01, "baseline")]
    picture = trajectory(made_trajectory(lines))
    heights = [float(y) for y in re.findall(r'class="note" x="[\d.]+" y="([\d.]+)"', picture)]
    assert abs(heights[0] - heights[1]) >= 14


def test_points_stand_under_the_roof():
    picture = roofline(made_roofline([PEAK], [RatePoint("best", 4e10, 0.5, "best")]))
    assert "40 GFLOP/s" in picture
    assert "1 TFLOP/s peak" in picture


def test_a_point_whose_traffic_was_counted_stands_where_it_really_is():
    plain, counted = (
        roofline(made_roofline([PEAK], [RatePoint("a", 1e11, intensity, "candidate")]))
        for intensity in (8.0, 2.0)
    )
    places = [re.findall(r'class="dot" cx="([\d.]+)"', picture) for picture in (plain, counted)]
    assert float(places[1][0]) < float(places[0][0])
    # An elite says its name under the pointer only.
    assert "<title>a: 100 GFLOP/s</title>" in plain
    assert plain.count("a: 100 GFLOP/s") == 1


def test_tensor_cores_have_a_roof_of_their_own():
    tensor = Roof("tensor cores", ((10.0, 1e12), (160.0, 16e12), (500.0, 16e12)))
    best = RatePoint("best", 4e12, 500.0, "best")
    picture = roofline(made_roofline([PEAK, tensor], [best], "measured: a copy"))
    assert "16 TFLOP/s tensor cores" in picture
    assert "1 TFLOP/s peak" in picture
    assert picture.count('<polyline class="roof"') == 2
    assert "measured: a copy" in picture


@given(st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=30))
def test_every_value_finds_its_place(values):
    scale = Scale(*around(values), 10, 500)
    assert all(10 <= scale.at(value) <= 500 for value in values)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())
    assert len(scale.ticks()) <= 12


@given(st.floats(1, 1e6))
def test_linear_axes_have_a_handful_of_ticks(end):
    ticks = Scale(0.0, end, 0, 100, logarithmic=False).ticks()
    assert 3 <= len(ticks) <= 25
    assert all(0 <= tick <= end for tick in ticks)
