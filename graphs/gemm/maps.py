"""A measured grid as heat maps, computed once and drawn by whoever shows them.

A map is of one K and one layout: M down, N across, a cell a shape. Speed-ups are coloured in steps
around 1, strategies by their name. Beside them stands what the winning kernels have in common.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from kernelwright.tools.gemm.choice import compared, geometric, is_ours
from kernelwright.tools.gemm.record import GemmRecord, Tried
from kernelwright.tools.types.measurement import Mode

# Upper ends of the steps in which ratios are coloured, the last one open.
STEPS = (0.8, 0.95, 0.99, 1.01, 1.05, 1.2)
What = Literal["offline", "server", "strategy"]
# A difference seen at fewer shapes than these says nothing.
_FEWEST = 3


@dataclass(frozen=True)
class Cell:
    """A shape: its place, what stands in it, its step or strategy's number, the whole story."""

    row: int
    column: int
    words: str
    step: int
    ours: bool
    title: str


@dataclass(frozen=True)
class HeatMap:
    """Cells over sides: `rows` are M, `columns` N, for one K, layout and number of batches."""

    title: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: tuple[Cell, ...]


def strategies(records: Sequence[GemmRecord]) -> tuple[str, ...]:
    """Every winning strategy, the most frequent first; their numbers are the colours."""
    counted = Counter(record.best.strategy for record in records if record.best and is_ours(record))
    return tuple(name for name, _ in counted.most_common())


def heat_maps(records: Sequence[GemmRecord], baseline: str, what: What) -> tuple[HeatMap, ...]:
    """A map for each K, layout and number of batches, sides in rising order.

    Args:
        records: What was measured.
        baseline: The way of the library that ratios are over.
        what: Ratios offline or in server mode, or the strategy that runs.
    """
    rows = tuple(sorted({record.shape.m for record in records}))
    columns = tuple(sorted({record.shape.n for record in records}))
    names = strategies(records)

    def of(record: GemmRecord) -> tuple[str, int, int]:
        return record.shape.layout, record.shape.batch, record.shape.k

    found = []
    for (layout, batch, k), group in groupby(sorted(records, key=of), key=of):
        cells = [_cell(record, baseline, what, rows, columns, names) for record in group]
        title = f"K = {k}, {layout}" + (f", {batch} times" if batch > 1 else "")
        found.append(HeatMap(title, rows, columns, tuple(filter(None, cells))))
    return tuple(found)


def _cell(
    record: GemmRecord,
    baseline: str,
    what: What,
    rows: Sequence[int],
    columns: Sequence[int],
    names: Sequence[str],
) -> Cell | None:
    row, column = rows.index(record.shape.m), columns.index(record.shape.n)
    ours = is_ours(record)
    if what == "strategy":
        return _running(record, row, column, names)
    mode: Mode = what
    found = compared(record, baseline, mode)
    if found is None:
        return None
    step = sum(found.ratio > end for end in STEPS)
    title = f"{found.ratio:.3f} [{found.ci95_low:.3f}, {found.ci95_high:.3f}]"
    runs = "ours" if ours else "the library keeps it"
    return Cell(
        row, column, f"{found.ratio:.2f}", step, ours, f"{record.shape.name}: {title}, {runs}"
    )


def _running(record: GemmRecord, row: int, column: int, names: Sequence[str]) -> Cell:
    """What the dispatch runs: a kernel by its tile, where it has one, or the library."""
    best = record.best if is_ours(record) else None
    if best is None:
        return Cell(row, column, "library", -1, False, f"{record.shape.name}: the library keeps it")
    tile = next((one.value for one in best.settings if one.name == "TILE"), 0)
    words = f"{tile // 1000}x{tile % 1000}" if tile else best.strategy
    title = f"{record.shape.name}: {best.words}"
    return Cell(row, column, words, names.index(best.strategy), True, title)


@dataclass(frozen=True)
class Common:
    """What the fastest candidates of shapes have in common.

    Among the shapes at which some candidate with `setting` and one without it were right, those
    with it are the fastest at `wins` of `shapes`, and take `ratio` times the others' time.
    """

    setting: str
    shapes: int
    wins: int
    ratio: float


def in_common(records: Sequence[GemmRecord]) -> tuple[Common, ...]:
    """Contrasts of the tried candidates within each shape, the widest difference first.

    Candidates of one shape are held against each other, so that what is seen is the setting and
    not the shape it was tried at.
    """
    names = {
        name for record in records for tried in record.tried if tried.ms for name in _traits(tried)
    }
    found = [one for name in sorted(names) if (one := _contrast(records, name)) is not None]
    return tuple(sorted(found, key=lambda one: one.ratio))


def _contrast(records: Sequence[GemmRecord], trait: str) -> Common | None:
    ratios = []
    for record in records:
        timed = [(trait in _traits(one), one.ms) for one in record.tried if one.ms]
        with_it = [ms for has, ms in timed if has]
        without = [ms for has, ms in timed if not has]
        if with_it and without:
            ratios.append(min(with_it) / min(without))
    if len(ratios) < _FEWEST:
        return None
    wins = sum(ratio < 1.0 for ratio in ratios)
    return Common(setting=trait, shapes=len(ratios), wins=wins, ratio=geometric(ratios))


def _traits(tried: Tried) -> frozenset[str]:
    named = {f"{tried.strategy} {one.name}={one.value}" for one in tried.settings}
    return frozenset({tried.strategy, *named})
