"""The tables of a grid of products: a line a shape, the means, what is expected of other shapes."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view.events import count, milliseconds, one_line, seconds
from kernelwright.tools.gemm.choice import (
    AUTOTUNED,
    EAGER,
    TITLES,
    Guess,
    compared,
    hardest,
    is_ours,
    means,
    quality,
    ways,
)
from kernelwright.tools.gemm.record import GemmRecord
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import Comparison

NOTHING = "-"
_OVERFLOWN = "sums in fp16 overflow, the library's own too, and nothing was judged, on values"
CLASSES = {"small": "below 1e9", "medium": "1e9 to 1e11", "large": "from 1e11 on", None: "all"}


def line_of(record: GemmRecord) -> str:
    """A shape as it ended, in one line."""
    if record.ended != "measured":
        return f"{record.shape.name}: {record.ended}: {one_line(record.words, 120)}"
    against = hardest([record])
    offline = compared(record, against, "offline")
    server = compared(record, against, "server")
    words = f"{record.shape.name}: {_interval(offline)} beside {TITLES[against]}"
    words += f", server {_interval(server)}" if server else ""
    keeps = "ours" if is_ours(record) else "library"
    return f"{words}, {keeps}, {len(record.tried)} tried, {seconds(record.seconds)}"


def summary_of(records: Sequence[GemmRecord]) -> RenderableType:
    """Every shape, the means beside each way of the library, what is absent, how guesses do."""
    parts: list[RenderableType] = [_shapes(records)]
    for name in ways(records):
        if found := means(records, name):
            table = Table(title=f"beside {TITLES[name]}", title_justify="left", box=None)
            for column in ("load", "operations", "shapes", "alone", "dispatched", "faster",
                           "slower", "least", "ours"):  # fmt: skip
                table.add_column(column)
            for one in found:
                table.add_row(
                    one.mode, CLASSES[one.size_class], str(one.shapes), f"{one.bare:.3f}",
                    f"{one.dispatched:.3f}", str(one.won), str(one.lost), f"{one.least:.3f}",
                    str(one.chosen),
                )  # fmt: skip
            parts += [Text(""), table]
    return Group(*parts, *map(Text, _words(records)))


def _words(records: Sequence[GemmRecord]) -> list[str]:
    """What the figures do not say."""
    lines = ["", _pace(records)]
    if (found := quality(records)).shapes:
        lines.append(
            f"guessed from the other shapes: who wins is right at {found.agreed} of {found.shapes};"
            f" the guessed setting, tried at {found.tried}, took {found.loss:.3f} times the"
            f" fastest's time, {found.worst:.2f} at worst"
        )
    overflown = sorted({kind for record in records for kind in record.overflown})
    lines += [f"{_OVERFLOWN}: {', '.join(overflown)}"] if overflown else []
    absent = {words for record in records for words in record.absent}
    lines += [f"not compared: {one_line(words, 200)}" for words in sorted(absent)[:4]]
    return lines


def _pace(records: Sequence[GemmRecord]) -> str:
    spent = sum(record.seconds for record in records)
    ours = sum(is_ours(record) for record in records)
    return (
        f"{count(len(records), 'shape')}, {ours} ours, {seconds(spent / max(len(records), 1))} a "
        "shape; alone is our kernel wherever one is right, dispatched with the library's own time "
        "where it keeps a shape"
    )


def _shapes(records: Sequence[GemmRecord]) -> Table:
    table = Table(box=None)
    columns = ("M N K", "layout", "cuBLAS", "autotuned", "ours", "over it [95 %]", "server", "runs",
               "kernel")  # fmt: skip
    for column in columns:
        table.add_column(column, overflow="fold")
    for record in records:
        table.add_row(*_cells(record))
    return table


def _cells(record: GemmRecord) -> tuple[str, ...]:
    shape, against = record.shape, hardest([record])
    sizes = f"{shape.m} {shape.n} {shape.k}" + (f" x{shape.batch}" if shape.batch > 1 else "")
    offline = compared(record, against, "offline")
    kernel = record.best.words if record.best else one_line(record.words, 50)
    return (
        sizes,
        shape.layout,
        _ms(record, EAGER),
        _ms(record, AUTOTUNED),
        milliseconds(offline.candidate_ms) if offline else NOTHING,
        _interval(offline),
        _interval(compared(record, against, "server")),
        "ours" if is_ours(record) else "library",
        kernel,
    )


def _ms(record: GemmRecord, name: str) -> str:
    known = record.baselines.named(name) if record.baselines else None
    taken = known.measurement if known else None
    return milliseconds(taken.median_ms) if taken else NOTHING


def _interval(found: Comparison | None) -> str:
    if found is None:
        return NOTHING
    return f"{found.ratio:.3f} [{found.ci95_low:.3f}, {found.ci95_high:.3f}]"


def guess_table(guesses: Sequence[tuple[GemmShape, Guess | None]]) -> Table:
    """What is expected of shapes that were not measured; none of it is dispatched to."""
    table = Table(title="expected, by the nearest shape that was measured", box=None)
    for column in ("shape", "nearest", "runs", "setting to try first"):
        table.add_column(column, overflow="fold")
    for shape, found in guesses:
        if found is None:
            table.add_row(shape.name, NOTHING, "library", NOTHING)
            continue
        settings = " ".join(f"{one.name}={one.value}" for one in found.settings)
        runs = "ours" if found.ours else "library"
        table.add_row(shape.name, found.of.name, runs, f"{found.strategy} {settings}")
    return table
