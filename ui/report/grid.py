"""The page of a measured grid: means, heat maps over M, N and K, what winners have in common."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from kernelwright.graphs.gemm.maps import (
    STEPS,
    HeatMap,
    heat_maps,
    in_common,
    strategies,
)
from kernelwright.graphs.run_view.events import milliseconds, plain, seconds
from kernelwright.tools.gemm.choice import (
    AUTOTUNED,
    EAGER,
    HEURISTIC,
    TITLES,
    compared,
    hardest,
    is_ours,
    means,
    quality,
    ways,
)
from kernelwright.tools.gemm.record import GemmRecord
from kernelwright.ui.terminal.grid_tables import CLASSES

HERE = Path(__file__).parent
WAYS = (EAGER, HEURISTIC, AUTOTUNED)
# Of a cell and of what stands beside cells, in pixels.
_WIDE, _HIGH, _LEFT, _TOP = 52, 24, 60, 22
_COMMON = 12


def grid_page(records: Sequence[GemmRecord]) -> str:
    """The page's text, whole in itself."""
    against = hardest(records)
    terms = records[0].terms
    return _template().render(
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        terms=terms,
        records=records,
        against=TITLES[against],
        means=[(TITLES[name], found) for name in ways(records) if (found := means(records, name))],
        classes=CLASSES,
        maps=_maps(records, against),
        steps=_steps(),
        names=list(enumerate(strategies(records))),
        common=in_common(records)[:_COMMON],
        quality=quality(records),
        overflown=sorted({kind for record in records for kind in record.overflown}),
        absent=sorted({words for record in records for words in record.absent}),
        rows=[_row(record, against) for record in records],
        spent=seconds(sum(record.seconds for record in records) / len(records)),
        ours=sum(map(is_ours, records)),
    )


@cache
def _template() -> Template:
    environment = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"plain": plain}
    return environment.from_string((HERE / "grid.html.j2").read_text(encoding="utf-8"))


def _maps(records: Sequence[GemmRecord], against: str) -> list[tuple[str, list[Markup]]]:
    """Each kind of map with its drawings."""
    beside = TITLES[against]
    kinds = (
        (f"Speed-up over {beside}, calls queued", heat_maps(records, against, "offline")),
        (f"Speed-up over {beside}, server mode", heat_maps(records, against, "server")),
        ("What runs", heat_maps(records, against, "strategy")),
    )
    return [
        (title, [_drawn(one, "t" if title == "What runs" else "s") for one in maps if one.cells])
        for title, maps in kinds
    ]


def _drawn(heat: HeatMap, kind: str) -> Markup:
    """A map as SVG: M down, N across; what the dispatch runs of ours has a frame."""
    width = _LEFT + _WIDE * len(heat.columns)
    height = _TOP + _HIGH * len(heat.rows) + _TOP
    parts = [f'<text class="tick" x="0" y="14">{escape(heat.title)}</text>']
    for at, size in enumerate(heat.columns):
        x = _LEFT + _WIDE * at + _WIDE // 2
        parts.append(f'<text class="tick middle" x="{x}" y="{height - 6}">{size}</text>')
    for at, size in enumerate(heat.rows):
        y = _TOP + _HIGH * at + _HIGH // 2 + 4
        parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y}">{size}</text>')
    for cell in heat.cells:
        x, y = _LEFT + _WIDE * cell.column, _TOP + _HIGH * cell.row
        named = f"{kind}{cell.step}" if cell.step >= 0 else "none"
        frame = " framed" if cell.ours else ""
        parts.append(
            f'<g><title>{escape(cell.title)}</title><rect class="cell {named}{frame}" x="{x + 1}" '
            f'y="{y + 1}" width="{_WIDE - 2}" height="{_HIGH - 2}"/><text class="tick middle" '
            f'x="{x + _WIDE // 2}" y="{y + _HIGH // 2 + 4}">{escape(cell.words)}</text></g>'
        )
    label = escape(f"Heat map, {heat.title}")
    return Markup(
        f'<svg class="map" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def _steps() -> list[tuple[int, str]]:
    """The colours of ratios, in words."""
    ends = [f"up to {STEPS[0]:g}"]
    ends += [f"to {end:g}" for end in STEPS[1:]] + [f"above {STEPS[-1]:g}"]
    return list(enumerate(ends))


def _row(record: GemmRecord, against: str) -> dict[str, str]:
    offline = compared(record, against, "offline")
    server = compared(record, against, "server")
    known = record.baselines
    medians = {item.name: item.measurement for item in known.items} if known else {}
    times = {name: taken.median_ms if (taken := medians.get(name)) else None for name in WAYS}
    return {
        "name": record.shape.name,
        **{name: milliseconds(taken) for name, taken in times.items()},
        "ours": milliseconds(offline.candidate_ms if offline else None),
        "offline": _interval(offline.ratio, offline.ci95_low, offline.ci95_high)
        if offline
        else "-",
        "server": _interval(server.ratio, server.ci95_low, server.ci95_high) if server else "-",
        "runs": "ours" if is_ours(record) else "library",
        "kernel": record.best.words if record.best else plain(record.words, 160),
    }


def _interval(ratio: float, low: float, high: float) -> str:
    return f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
