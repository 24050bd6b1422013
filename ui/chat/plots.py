"""The two drawings of a run for the page: how the search went, and where the roof is.

They are Plotly's own JSON, made without its library: that takes a millisecond instead of a tenth of
a second, and every colour is legible on light and on dark.
"""

import asyncio
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from chainlit.element import Element

from agents.assistant.types.chat import Picture
from profiles.load import Hardware
from tools.archive import RunError
from ui.chat.drawing import element_of
from ui.chat.gathering import Gathered
from ui.chat.lines import Sheet
from ui.story import load
from ui.words import amount, milliseconds, one_line, plain

INK, FAINT = "#7d8590", "rgba(125,133,144,0.25)"
DOT, BEST, BASE, FLOOR = "rgba(47,129,247,0.55)", "#2da44e", "#d4731f", "#a371f7"
HEIGHT = 320


@dataclass(frozen=True)
class Dot:
    """A correct candidate: when it was timed in seconds of the run, how fast, what to say of it."""

    at_s: float
    ms: float
    words: str


def trajectory(known: Gathered) -> str:
    """Times of candidates over the search, the best so far, baselines and floor; "" for none."""
    dots = dots_of(known)
    lines = levels(known)
    if not dots and not lines:
        return ""
    end = max([dot.at_s for dot in dots] + _ends(known) + [1.0])
    traces: list[object] = [_level(name, ms, end, color) for name, ms, color in lines]
    if dots:
        traces += [_dots(dots), _best(dots, end)]
    axes = {"xaxis": _axis("seconds since the start"), "yaxis": _axis("time", log=True)}
    axes["yaxis"] |= {"ticksuffix": " ms"}
    return _figure(traces, axes)


def roofline(known: Gathered, hardware: Hardware) -> str:
    """PyTorch and the best under the roofs; "" where there is no arithmetic to place."""
    points = [(name, known.flops / (ms / 1e3)) for name, ms, _ in levels(known) if name != "floor"]
    if known.leaders and known.leaders[0].correct_ms:
        points.append(("best", known.flops / (known.leaders[0].correct_ms / 1e3)))
    if not known.flops or not known.bytes_moved or not points:
        return ""
    intensity = known.flops / known.bytes_moved
    slope, peak = hardware.bandwidth_gb_s * 1e9, hardware.fp32_tflops * 1e12
    ridge = peak / slope
    xs = [min(intensity, ridge) / 8, ridge, max(intensity, ridge) * 8]
    roof = {
        "type": "scatter",
        "mode": "lines",
        "name": "roof",
        "x": xs,
        "y": [slope * xs[0], peak, peak],
        "line": {"color": FLOOR},
        "hoverinfo": "skip",
    }
    traces = [roof, *(_point(name, intensity, rate) for name, rate in points)]
    axes = {"xaxis": _axis("FLOP per byte", log=True), "yaxis": _axis("FLOP/s", log=True)}
    return _figure(traces, axes)


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
    known = Gathered()
    for event in story.events:
        known.take(event)
    if wanted.what == "trajectory":
        return trajectory(known)
    return roofline(known, story.record.hardware)


def dots_of(known: Gathered) -> list[Dot]:
    """Every correct candidate, when it was first judged."""
    begun = known.begun
    if begun is None:
        return []
    dots = []
    for item in known.tried.values():
        if item.correct_ms is not None and item.judged_at is not None:
            idea = known.ideas.get(item.candidate.idea)
            words = f"{item.name}: {milliseconds(item.correct_ms)}"
            words += f", {one_line(idea.title, 60)}" if idea else ""
            dots.append(Dot((item.judged_at - begun).total_seconds(), item.correct_ms, words))
    return sorted(dots, key=lambda dot: dot.at_s)


def levels(known: Gathered) -> list[tuple[str, float, str]]:
    """Baselines and floor: a name, milliseconds and a colour each."""
    items = known.baselines.items if known.baselines else ()
    lines = [(one_line(b.name, 30), b.measurement.median_ms, BASE) for b in items if b.measurement]
    return lines + ([("floor", known.floor_ms, FLOOR)] if known.floor_ms else [])


def _ends(known: Gathered) -> list[float]:
    begun = known.begun
    return [(end - begun).total_seconds() for end in known.round_ends.values()] if begun else []


def _level(name: str, ms: float, end: float, color: str) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{_shown(name)} {milliseconds(ms)}",
        "x": [0, end],
        "y": [ms, ms],
        "line": {"color": color, "dash": "dot", "width": 1.5},
        "hoverinfo": "name",
    }


def _dots(dots: list[Dot]) -> dict[str, object]:
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


def _best(dots: list[Dot], end: float) -> dict[str, object]:
    """The best so far, as a line that only ever falls."""
    xs: list[float] = []
    ys: list[float] = []
    for dot in dots:
        if not ys or dot.ms < ys[-1]:
            xs.append(dot.at_s)
            ys.append(dot.ms)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"best {milliseconds(ys[-1])}",
        "x": [*xs, end],
        "y": [*ys, ys[-1]],
        "line": {"color": BEST, "shape": "hv", "width": 2.5},
        "hoverinfo": "skip",
    }


def _point(name: str, intensity: float, rate: float) -> dict[str, object]:
    color = BEST if name == "best" else BASE
    words = f"{_shown(name)}: {amount(rate, 'FLOP/s')}"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": words,
        "x": [intensity],
        "y": [rate],
        "marker": {"color": color, "size": 10},
        "hoverinfo": "name",
    }


def _axis(title: str, *, log: bool = False) -> dict[str, object]:
    return {
        "title": {"text": title},
        "type": "log" if log else "linear",
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
