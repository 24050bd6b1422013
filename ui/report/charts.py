"""The report's charts as inline SVG: how the search went, and where the roof is.

Colours are the page's CSS classes, so that light and dark both work; titles give the numbers
under the pointer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from markupsafe import Markup, escape

from kernelwright.graphs.run_view.charts import (
    Axis,
    Kind,
    Level,
    RatePoint,
    Roof,
    Roofline,
    Trajectory,
)
from kernelwright.graphs.run_view.events import amount, milliseconds


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to positions between `start` and `end` in pixels."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = True

    def at(self, value: float) -> float:
        """The position of a value, clipped to the axis."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = log10(value / self.low) / log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values on the axis: 1, 2, 5 times powers of ten, fewer when the axis is long."""
        if not self.logarithmic:
            return _linear(self.low, self.high)
        decades = log10(self.high / self.low)
        steps = (1, 2, 5) if decades < 2.5 else (1,)
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        every = 1 + int(decades // 7)
        ticks = [s * 10.0**p for p in powers if p % every == 0 for s in steps]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def _linear(low: float, high: float) -> list[float]:
    span = high - low
    step = 10.0 ** floor(log10(span)) if span > 0 else 1.0
    for finer in (5, 2):
        if span / step < 4:
            step /= finer
    first = ceil(low / step)
    return [round((first + i) * step, 10) for i in range(int((high - first * step) / step) + 1)]


WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 150, 14, 42
POINTS: dict[Kind, str] = {
    "baseline": "baseline",
    "floor": "floor",
    "best": "top",
    "candidate": "dot",
}


def trajectory(chart: Trajectory | None) -> Markup:
    """Times of candidates over the search, the best so far as steps, baselines and floor."""
    if chart is None:
        return Markup("")
    across, down = _across(chart.x), _down(chart.y)
    parts = [_frame(across, down, chart.x.title, _seconds, _time)]
    for end_s in chart.round_ends_s:
        x = across.at(end_s)
        parts.append(f'<line class="round" x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}"/>')
    parts += [_level(line, down, y) for line, y in _spread(chart.levels, down)]
    parts += [
        f'<circle class="dot" cx="{across.at(dot.at_s)}" cy="{down.at(dot.ms)}" r="3">'
        f"<title>{escape(dot.words)}</title></circle>"
        for dot in chart.dots
    ]
    parts.append(_steps(chart.best, across, down))
    return _svg("Times of candidates over the search", parts)


def roofline(chart: Roofline | None) -> Markup:
    """Where implementations stand under the device's roofs."""
    if chart is None:
        return Markup("")
    across, down = _across(chart.x), _down(chart.y)
    x, limit = across.at(chart.intensity), chart.limit
    parts = [
        _frame(across, down, chart.x.title, lambda v: f"{v:g}", _rate),
        *(_roof(roof, across, down, chart.source) for roof in chart.roofs),
        f'<line class="floor" x1="{x}" y1="{down.at(limit)}" x2="{x}" y2="{HEIGHT - BOTTOM}">'
        f"<title>the floor: {_rate(limit)}</title></line>",
    ]
    parts += [
        f'<text class="note" x="{across.at(chart.x.high) + 6}" y="{down.at(roof.peak) + 4}">'
        f"{_rate(roof.peak)} {roof.name}</text>"
        for roof in chart.roofs
    ]
    labelled = [point for point in chart.points if _is_labelled(point)]
    labels = iter(_apart([down.at(point.flops_per_s) for point in labelled]))
    for point in chart.points:
        parts.append(_point(point, across.at(point.intensity), down))
        if _is_labelled(point):
            words = f"{point.name}: {_rate(point.flops_per_s)}"
            at = f'x="{across.at(point.intensity) + 10}" y="{next(labels) + 4}"'
            parts.append(f'<text class="note" {at}>{escape(words)}</text>')
    return _svg("Roofline", parts)


def _is_labelled(point: RatePoint) -> bool:
    """The others say their name under the pointer."""
    return point.kind != "candidate"


def _across(axis: Axis) -> Scale:
    return Scale(axis.low, axis.high, LEFT, WIDTH - RIGHT, logarithmic=axis.logarithmic)


def _down(axis: Axis) -> Scale:
    return Scale(axis.low, axis.high, HEIGHT - BOTTOM, TOP, logarithmic=axis.logarithmic)


def _roof(roof: Roof, across: Scale, down: Scale, source: str) -> str:
    path = " ".join(f"{across.at(x)},{down.at(y)}" for x, y in roof.corners)
    return f'<polyline class="roof" points="{path}"><title>{escape(source)}</title></polyline>'


def _point(point: RatePoint, x: float, down: Scale) -> str:
    words = f"{point.name}: {_rate(point.flops_per_s)}"
    radius = 5 if _is_labelled(point) else 3
    return (
        f'<circle class="{POINTS[point.kind]}" cx="{x}" cy="{down.at(point.flops_per_s)}" '
        f'r="{radius}"><title>{escape(words)}</title></circle>'
    )


def dumbbell(predicted_ms: float | None, measured_ms: float | None, scale: Scale) -> Markup:
    """What an idea promised (ring) and brought (dot), on a scale shared by all ideas."""
    parts = [f'<line class="axis" x1="{scale.start}" y1="9" x2="{scale.end}" y2="9"/>']
    if predicted_ms is not None and measured_ms is not None:
        a, b = scale.at(predicted_ms), scale.at(measured_ms)
        parts.append(f'<line class="gap" x1="{a}" y1="9" x2="{b}" y2="9"/>')
    for value, style, word in (
        (predicted_ms, "ring", "predicted"),
        (measured_ms, "spot", "measured"),
    ):
        if value is not None:
            parts.append(
                f'<circle class="{style}" cx="{scale.at(value)}" cy="9" r="4.5">'
                f"<title>{word} {milliseconds(value)}</title></circle>"
            )
    inside = "".join(parts)
    return Markup(
        f'<svg class="dumbbell" width="{scale.end + 8}" height="18" role="img">{inside}</svg>'
    )


def _frame(
    across: Scale,
    down: Scale,
    below: str,
    say_x: Callable[[float], str],
    say_y: Callable[[float], str],
) -> str:
    parts = []
    for tick in down.ticks():
        y = down.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4}">{say_y(tick)}</text>')
    for tick in across.ticks():
        x = across.at(tick)
        y = HEIGHT - BOTTOM
        parts.append(f'<line class="axis" x1="{x}" y1="{y}" x2="{x}" y2="{y + 5}"/>')
        parts.append(f'<text class="tick middle" x="{x}" y="{y + 18}">{say_x(tick)}</text>')
    y = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="tick middle" x="{middle}" y="{HEIGHT - 6}">{below}</text>')
    return "".join(parts)


def _level(line: Level, down: Scale, label_y: float) -> str:
    y = down.at(line.ms)
    return (
        f'<line class="{line.kind}" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}">'
        f"<title>{escape(line.words)}</title></line>"
        f'<text class="note" x="{WIDTH - RIGHT + 6}" y="{label_y + 4}">{escape(line.words)}</text>'
    )


def _spread(lines: Sequence[Level], down: Scale) -> list[tuple[Level, float]]:
    return list(zip(lines, _apart([down.at(line.ms) for line in lines]), strict=True))


def _apart(positions: list[float], gap: float = 14.0) -> list[float]:
    """Label positions moved down just so far that no two overlap."""
    moved = list(positions)
    order = sorted(range(len(moved)), key=lambda i: moved[i])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


def _steps(corners: Sequence[tuple[float, float]], across: Scale, down: Scale) -> str:
    """The best so far, up to the chart's edge."""
    path = ""
    for at_s, ms in corners:
        x, y = across.at(at_s), down.at(ms)
        path += f"M{x},{y}" if not path else f"H{x}V{y}"
    return f'<path class="best" d="{path}H{across.at(across.high)}"/>' if path else ""


def _seconds(value: float) -> str:
    return f"{value:g}"


def _time(ms: float) -> str:
    return f"{ms:g} ms" if ms >= 1 else f"{ms * 1000:g} µs"


def _rate(value: float) -> str:
    return amount(value, "FLOP/s")


def _svg(title: str, parts: list[str]) -> Markup:
    # Every text that is not ours was escaped where it was put in.
    inside = "".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{inside}</svg>'
    )
