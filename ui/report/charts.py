"""The report's two charts as inline SVG: how the search went, and where the roof is.

Colours are the page's CSS classes, so that light and dark both work; titles give the numbers
under the pointer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from ui.report.scale import Scale, around
from ui.words import amount, milliseconds

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 150, 14, 42


@dataclass(frozen=True)
class Dot:
    """One correct candidate: when it was timed, how fast it is, and what to say of it."""

    at_s: float
    ms: float
    words: str


@dataclass(frozen=True)
class Line:
    """A horizontal line with a name: a baseline, or the floor."""

    name: str
    ms: float
    style: str


def trajectory(dots: list[Dot], lines: list[Line], round_ends_s: list[float]) -> Markup:
    """Times of candidates over the search, the best so far as a step, baselines and floor."""
    if not dots and not lines:
        return Markup("")
    end = max([dot.at_s for dot in dots] + round_ends_s + [1.0])
    across = Scale(0.0, end * 1.02, LEFT, WIDTH - RIGHT, logarithmic=False)
    # The slowest candidates would squeeze everything else to a line; they are drawn at the edge.
    known = sorted(dot.ms for dot in dots)
    slow = known[int(0.9 * (len(known) - 1))] if known else 0.0
    low, high = around([line.ms for line in lines] + known[:1] + ([slow] if slow else []))
    down = Scale(low, high, HEIGHT - BOTTOM, TOP)
    parts = [_frame(across, down, "seconds since the start", _seconds, _time)]
    for end_s in round_ends_s:
        x = across.at(end_s)
        parts.append(f'<line class="round" x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}"/>')
    parts += [_level(line, down, y) for line, y in _spread(lines, down)]
    parts += [
        f'<circle class="dot" cx="{across.at(dot.at_s)}" cy="{down.at(dot.ms)}" r="3">'
        f"<title>{escape(dot.words)}</title></circle>"
        for dot in dots
    ]
    parts.append(_steps(dots, across, down))
    return _svg("Times of candidates over the search", parts)


@dataclass(frozen=True)
class Point:
    """One implementation under the roof: FLOP per second and what to call it.

    `intensity` is FLOP per byte that memory really carried, None where that was not counted; then
    it stands at the task's. A point without a label of its own says its name under the pointer.
    """

    name: str
    flops_per_s: float
    style: str
    intensity: float | None = None
    labelled: bool = True


def roofline(
    intensity: float,
    bandwidth_gb_s: float,
    peak_tflops: float,
    points: list[Point],
    tensor_tflops: float | None = None,
    source: str = "",
) -> Markup:
    """Where implementations stand under the device's two roofs.

    Args:
        intensity: FLOP per byte of the task, the same for every implementation.
        bandwidth_gb_s: Slope of the memory's roof, in 10^9 bytes per second.
        peak_tflops: The flat roof, in 10^12 FLOP per second.
        points: What was measured.
        tensor_tflops: A second flat roof, where candidates use tensor cores.
        source: Where the roofs' figures come from.
    """
    bandwidth = bandwidth_gb_s * 1e9
    peaks = [rate * 1e12 for rate in (peak_tflops, tensor_tflops) if rate]
    places = [point.intensity or intensity for point in points]
    ridge, top = peaks[0] / bandwidth, max(peaks)
    x_low, x_high = around([intensity, *places, *(rate / bandwidth for rate in peaks)], 8.0)
    y_low, y_high = around([p.flops_per_s for p in points] + [top, bandwidth * x_low], 1.6)
    across = Scale(x_low, x_high, LEFT, WIDTH - RIGHT)
    down = Scale(y_low, y_high, HEIGHT - BOTTOM, TOP)
    slope = [(x_low, bandwidth * x_low), (ridge, peaks[0])]
    roofs = [[*slope, (x_high, peaks[0])]]
    roofs += [[(ridge, peaks[0]), (rate / bandwidth, rate), (x_high, rate)] for rate in peaks[1:]]
    limit = min(top, bandwidth * intensity)
    x = across.at(intensity)
    parts = [
        _frame(across, down, "FLOP per byte", lambda v: f"{v:g}", _rate),
        *(_roof(roof, across, down, source) for roof in roofs),
        f'<line class="floor" x1="{x}" y1="{down.at(limit)}" x2="{x}" y2="{HEIGHT - BOTTOM}">'
        f"<title>the floor: {_rate(limit)}</title></line>",
    ]
    parts += [
        f'<text class="note" x="{across.at(x_high) + 6}" y="{down.at(rate) + 4}">'
        f"{_rate(rate)} {'peak' if number == 0 else 'tensor cores'}</text>"
        for number, rate in enumerate(peaks)
    ]
    labels = iter(_apart([down.at(point.flops_per_s) for point in points if point.labelled]))
    for point, place in zip(points, places, strict=True):
        parts.append(_point(point, across.at(place), down))
        if point.labelled:
            words = f"{point.name}: {_rate(point.flops_per_s)}"
            at = f'x="{across.at(place) + 10}" y="{next(labels) + 4}"'
            parts.append(f'<text class="note" {at}>{escape(words)}</text>')
    return _svg("Roofline", parts)


def _roof(corners: list[tuple[float, float]], across: Scale, down: Scale, source: str) -> str:
    path = " ".join(f"{across.at(x)},{down.at(y)}" for x, y in corners)
    return f'<polyline class="roof" points="{path}"><title>{escape(source)}</title></polyline>'


def _point(point: Point, x: float, down: Scale) -> str:
    words = f"{point.name}: {_rate(point.flops_per_s)}"
    radius = 5 if point.labelled else 3
    return (
        f'<circle class="{point.style}" cx="{x}" cy="{down.at(point.flops_per_s)}" r="{radius}">'
        f"<title>{escape(words)}</title></circle>"
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


def _level(line: Line, down: Scale, label_y: float) -> str:
    y = down.at(line.ms)
    words = f"{line.name} {milliseconds(line.ms)}"
    return (
        f'<line class="{line.style}" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}">'
        f"<title>{escape(words)}</title></line>"
        f'<text class="note" x="{WIDTH - RIGHT + 6}" y="{label_y + 4}">{escape(words)}</text>'
    )


def _spread(lines: list[Line], down: Scale) -> list[tuple[Line, float]]:
    return list(zip(lines, _apart([down.at(line.ms) for line in lines]), strict=True))


def _apart(positions: list[float], gap: float = 14.0) -> list[float]:
    """Label positions moved down just so far that no two overlap."""
    moved = list(positions)
    order = sorted(range(len(moved)), key=lambda i: moved[i])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


def _steps(dots: list[Dot], across: Scale, down: Scale) -> str:
    """The best so far, as a line that only ever falls."""
    best, path = float("inf"), ""
    for dot in sorted(dots, key=lambda dot: dot.at_s):
        if dot.ms < best:
            x, y = across.at(dot.at_s), down.at(dot.ms)
            path += f"M{x},{y}" if not path else f"H{x}V{y}"
            best = dot.ms
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
