"""The charts of a run as values, computed once from its view and drawn by more than one renderer.

The chat draws them with Plotly and the report as SVG; neither computes anything of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.agents.shared.facts import reading
from kernelwright.graphs.run_view import CandidateView, RunView
from kernelwright.graphs.run_view.events import milliseconds, one_line
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing, ranked

# What a mark stands for; renderers choose its colour by it.
Kind = Literal["baseline", "floor", "best", "candidate"]


@dataclass(frozen=True)
class Axis:
    """What an axis shows, from where to where, and whether in powers of ten."""

    title: str
    low: float
    high: float
    logarithmic: bool = True


@dataclass(frozen=True)
class TimedDot:
    """One correct candidate: when it was first judged, how fast it is, and what to say of it."""

    at_s: float
    ms: float
    words: str


@dataclass(frozen=True)
class Level:
    """A horizontal line with a name: a baseline, or the floor."""

    name: str
    ms: float
    kind: Kind

    @property
    def words(self) -> str:
        """The name with the time."""
        return f"{self.name} {milliseconds(self.ms)}"


@dataclass(frozen=True)
class Trajectory:
    """Times of candidates over the search: dots, the best so far as steps, and what to beat.

    `best` are the corners at which the lead changed, (seconds, milliseconds), up to `end_s`;
    `best_words` say where it ended.
    """

    dots: tuple[TimedDot, ...]
    best: tuple[tuple[float, float], ...]
    levels: tuple[Level, ...]
    round_ends_s: tuple[float, ...]
    end_s: float
    x: Axis
    y: Axis
    best_words: str = ""


@dataclass(frozen=True)
class Roof:
    """One limit of the device as a line of corners, (FLOP per byte, FLOP per second)."""

    name: str
    corners: tuple[tuple[float, float], ...]

    @property
    def peak(self) -> float:
        """The rate at which it is flat."""
        return self.corners[-1][1]


@dataclass(frozen=True)
class RatePoint:
    """One implementation under the roofs, by its rate and by the bytes that it moves."""

    name: str
    flops_per_s: float
    intensity: float
    kind: Kind


@dataclass(frozen=True)
class Roofline:
    """Where implementations stand under the device's roofs.

    `intensity` is the task's own, `limit` what the device allows there: the floor. `source` says
    where the roofs' figures come from.
    """

    intensity: float
    limit: float
    roofs: tuple[Roof, ...]
    points: tuple[RatePoint, ...]
    source: str
    x: Axis
    y: Axis


def trajectory(view: RunView) -> Trajectory | None:
    """How the search went; None where there is nothing to draw yet."""
    timed = sorted(
        (item for item in view.candidates.values() if item.correct_ms and item.judged_at),
        key=lambda item: _judged_s(view, item),
    )
    dots, lines = tuple(_dot(view, item) for item in timed), levels(view)
    if not dots and not lines:
        return None
    ends_s = tuple(view.seconds_at(end) for end in view.round_ends.values())
    end_s = max((*(dot.at_s for dot in dots), *ends_s, 1.0))
    return Trajectory(
        dots=dots,
        best=_steps(view, timed, end_s),
        best_words=f"{view.best_name} {view.best_figure.time}" if view.best_figure else "",
        levels=lines,
        round_ends_s=ends_s,
        end_s=end_s,
        x=Axis("seconds since the start", 0.0, end_s * 1.02, logarithmic=False),
        y=_time_axis(dots, lines),
    )


def roofline(view: RunView, hardware: Hardware, elites: Sequence[Standing] = ()) -> Roofline | None:
    """PyTorch, elites and the best under the roofs; None where there is no arithmetic to place.

    Args:
        view: of the run.
        hardware: Its roofs.
        elites: Which candidates besides the best are to be placed.
    """
    if not view.flops or not view.bytes_moved:
        return None
    intensity = view.flops / view.bytes_moved
    points = _rates(view, intensity, elites)
    if not points:
        return None
    slope = hardware.bandwidth_gb_s * 1e9
    peaks = [("peak", hardware.fp32_tflops * 1e12)]
    if hardware.tensor_tflops and _uses_tensor_cores(view):
        peaks.append(("tensor cores", hardware.tensor_tflops * 1e12))
    top, rates = max(peak for _, peak in peaks), [point.flops_per_s for point in points]
    places = [point.intensity for point in points]
    x_low, x_high = around([intensity, *places, *(peak / slope for _, peak in peaks)], 8.0)
    y_low, y_high = around([*rates, top, slope * x_low], 1.6)
    return Roofline(
        intensity=intensity,
        limit=min(top, slope * intensity),
        roofs=_roofs(peaks, slope, x_low, x_high),
        points=points,
        source=hardware.source,
        x=Axis("FLOP per byte", x_low, x_high),
        y=Axis("FLOP/s", y_low, y_high),
    )


def levels(view: RunView) -> tuple[Level, ...]:
    """Baselines and floor."""
    items = view.baselines.items if view.baselines else ()
    lines = [
        Level(one_line(item.name, 30), item.measurement.median_ms, "baseline")
        for item in items
        if item.measurement is not None
    ]
    return (*lines, *([Level("floor", view.floor_ms, "floor")] if view.floor_ms else []))


def around(values: Sequence[float], room: float = 1.25) -> tuple[float, float]:
    """Limits of a logarithmic axis that holds all values with some room."""
    return min(values) / room, max(values) * room


def _judged_s(view: RunView, item: CandidateView) -> float:
    return view.seconds_at(item.judged_at) if item.judged_at else 0.0


def _dot(view: RunView, item: CandidateView) -> TimedDot:
    figure = view.figure_of(item)
    words = f"{item.name}: {figure.time if figure else '-'}"
    if item.candidate.idea in view.ideas:
        words += f", {one_line(view.with_names(view.title(item.candidate.idea)), 60)}"
    return TimedDot(_judged_s(view, item), item.correct_ms or 0.0, words)


def _steps(
    view: RunView, timed: Sequence[CandidateView], end_s: float
) -> tuple[tuple[float, float], ...]:
    """Who led from when on, in the order in which the search ranks candidates.

    The last one is the best of the view, so that the line ends where everybody says it does.
    """
    leader: Standing | None = None
    steps: list[tuple[float, float]] = []
    for item in timed:
        rivals = [one for one in (leader, item.standing) if one is not None]
        first = next(iter(ranked(rivals)), None)
        if first is not None and first != leader:
            leader = first
            steps.append((_judged_s(view, item), item.correct_ms or 0.0))
    if view.best_ms and (not steps or steps[-1][1] != view.best_ms):
        steps.append((end_s, view.best_ms))
    return tuple(steps)


def _time_axis(dots: Sequence[TimedDot], lines: Sequence[Level]) -> Axis:
    """The slowest candidates would squeeze everything else to a line; they are at the edge."""
    known = sorted(dot.ms for dot in dots)
    slow = [known[int(0.9 * (len(known) - 1))]] if known else []
    low, high = around([*(line.ms for line in lines), *known[:1], *slow])
    return Axis("time", low, high)


def _rates(view: RunView, intensity: float, elites: Sequence[Standing]) -> tuple[RatePoint, ...]:
    best = view.best
    points = [
        RatePoint(line.name, view.flops / (line.ms / 1e3), intensity, "baseline")
        for line in levels(view)
        if line.kind == "baseline"
    ]
    chosen = [view.candidates[item.candidate.id] for item in elites]
    for item in (*(one for one in chosen if one != best), *([best] if best else [])):
        if item.correct_ms:
            rate, own = view.flops / (item.correct_ms / 1e3), item == best
            place = _carried_intensity(view, item) or intensity
            kind: Kind = "best" if own else "candidate"
            points.append(RatePoint("best" if own else item.name, rate, place, kind))
    return tuple(points)


def _carried_intensity(view: RunView, item: CandidateView) -> float | None:
    """FLOP per byte that memory really carried; None where that was not counted."""
    carried = reading(item.profile.evidence, "dram_traffic") if item.profile else None
    return view.flops / carried if carried else None


def _uses_tensor_cores(view: RunView) -> bool:
    profiles = [item.profile for item in view.candidates.values() if item.profile]
    return any(
        found.name.endswith(".tensor_instructions")
        for profile in profiles
        for found in profile.evidence
    )


def _roofs(
    peaks: Sequence[tuple[str, float]], slope: float, x_low: float, x_high: float
) -> tuple[Roof, ...]:
    """The first roof with the slope of memory, further ones from where they leave the first."""
    (name, first), *others = peaks
    ridge = (first / slope, first)
    roofs = [Roof(name, ((x_low, slope * x_low), ridge, (x_high, first)))]
    for name, peak in others:
        roofs.append(Roof(name, (ridge, (peak / slope, peak), (x_high, peak))))
    return tuple(roofs)
