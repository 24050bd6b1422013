"""The two charts of a run for the page: how the search went, and where the roof is.

They are Plotly's own JSON, made without its library: that takes a millisecond instead of a tenth of
a second, and every colour is legible on light and on dark.
"""

import asyncio
import json
import uuid
from pathlib import Path

from chainlit.element import Element

from kernelwright.agents.assistant.types.pieces import Picture
from kernelwright.graphs.run_view import RunView
from kernelwright.graphs.run_view.charts import (
    Axis,
    Kind,
    Level,
    RatePoint,
    Roof,
    Roofline,
    TimedDot,
    Trajectory,
)
from kernelwright.graphs.run_view.charts import roofline as roofline_of
from kernelwright.graphs.run_view.charts import trajectory as trajectory_of
from kernelwright.graphs.run_view.events import amount, plain
from kernelwright.graphs.run_view.story import load
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import RunError
from kernelwright.ui.chat.messages.elements import element_of
from kernelwright.ui.chat.messages.lines import Sheet

INK, FAINT = "#7d8590", "rgba(125,133,144,0.25)"
DOT, BEST, BASE, FLOOR = "rgba(47,129,247,0.55)", "#2da44e", "#d4731f", "#a371f7"
COLORS: dict[Kind, str] = {"baseline": BASE, "floor": FLOOR, "best": BEST, "candidate": DOT}
HEIGHT = 320


def trajectory(view: RunView) -> str:
    """Times of candidates over the search, the best so far, baselines and floor; "" for none."""
    chart = trajectory_of(view)
    if chart is None:
        return ""
    traces: list[object] = [_level(line, chart.end_s) for line in chart.levels]
    if chart.dots:
        traces += [_dots(chart.dots), _best(chart)]
    # The ranges are left to the page, where a person can zoom.
    axes = {"xaxis": _axis(chart.x), "yaxis": _axis(chart.y) | {"ticksuffix": " ms"}}
    return _figure(traces, axes)


def roofline(view: RunView, hardware: Hardware) -> str:
    """PyTorch and the best under the roofs; "" where there is no arithmetic to place."""
    chart = roofline_of(view, hardware)
    return _under_roofs(chart) if chart else ""


def _under_roofs(chart: Roofline) -> str:
    traces: list[object] = [
        *(_roof(roof, number) for number, roof in enumerate(chart.roofs)),
        *(_point(point) for point in chart.points),
    ]
    return _figure(traces, {"xaxis": _axis(chart.x), "yaxis": _axis(chart.y)})


async def picture(thread: str, home: Path, wanted: Picture) -> Element | None:
    """A drawing that was asked for; None where there is nothing to draw yet."""
    content = await asyncio.to_thread(_drawn, home, wanted)
    if not content:
        return None
    sheet = Sheet(
        key=f"{wanted.what}/{uuid.uuid4()}", name=wanted.what, kind="plotly", content=content
    )
    return element_of(thread, wanted.run, sheet)


def _drawn(home: Path, wanted: Picture) -> str:
    try:
        story = load(wanted.run, home)
    except RunError:
        return ""
    if wanted.what == "trajectory":
        return trajectory(story.view)
    return roofline(story.view, story.record.hardware)


def _level(line: Level, end_s: float) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _shown(line.words),
        "x": [0, end_s],
        "y": [line.ms, line.ms],
        "line": {"color": COLORS[line.kind], "dash": "dot", "width": 1.5},
        "hoverinfo": "name",
    }


def _dots(dots: tuple[TimedDot, ...]) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "candidates",
        "x": [dot.at_s for dot in dots],
        "y": [dot.ms for dot in dots],
        "text": [_shown(dot.words) for dot in dots],
        "hoverinfo": "text",
        "marker": {"color": DOT, "size": 7},
    }


def _best(chart: Trajectory) -> dict[str, object]:
    """The best so far, as steps up to the end."""
    corners = (*chart.best, *((chart.end_s, ms) for _, ms in chart.best[-1:]))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": chart.best_words,
        "x": [at_s for at_s, _ in corners],
        "y": [ms for _, ms in corners],
        "line": {"color": BEST, "shape": "hv", "width": 2.5},
        "hoverinfo": "skip",
    }


def _roof(roof: Roof, number: int) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": roof.name if number else "roof",
        "x": [x for x, _ in roof.corners],
        "y": [y for _, y in roof.corners],
        "line": {"color": FLOOR},
        "hoverinfo": "skip",
    }


def _point(point: RatePoint) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{_shown(point.name)}: {amount(point.flops_per_s, 'FLOP/s')}",
        "x": [point.intensity],
        "y": [point.flops_per_s],
        "marker": {"color": COLORS[point.kind], "size": 10},
        "hoverinfo": "name",
    }


def _axis(axis: Axis) -> dict[str, object]:
    return {
        "title": {"text": axis.title},
        "type": "log" if axis.logarithmic else "linear",
        "gridcolor": FAINT,
        "zeroline": False,
        "color": INK,
    }


def _figure(traces: list[object], axes: dict[str, dict[str, object]]) -> str:
    layout: dict[str, object] = {
        "height": HEIGHT,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "size": 12},
        "margin": {"l": 64, "r": 8, "t": 8, "b": 44},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        **axes,
    }
    config = {"displayModeBar": False, "responsive": True}
    return json.dumps({"data": traces, "layout": layout, "config": config})


def _shown(words: str) -> str:
    """Plotly reads a few tags in its texts; none of others' get through."""
    return plain(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
