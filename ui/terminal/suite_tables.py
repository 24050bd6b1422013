"""The tables of a suite: one line a task, the sums, two suites beside each other; and live.

While a suite runs, the live table has its last tasks, what the present one does and how many are
left. Where nobody watches a terminal there is a line for each task that ended.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view.events import (
    CandidateWritten,
    Event,
    RegionSearched,
    RegionsFound,
    count,
    milliseconds,
    one_line,
    percent,
    plain,
    ratio,
    seconds,
)
from kernelwright.graphs.suite import Contrast, Figures, Outcome, Pace, figures, pace
from kernelwright.graphs.suite.figures import sound
from kernelwright.graphs.suite.outcome import BESIDE
from kernelwright.tools.types import IN_MODE
from kernelwright.tools.types.run import BestSummary
from kernelwright.tools.types.speed_words import STATUS
from kernelwright.ui.terminal.output import remarks

NOTHING = "-"
_WORDS = ("task", "end", "against", "")
COLUMNS = ("task", "eager", "compile", "ours", "over eager", "over the better", "of roof", "end")


def row_cells(item: Outcome) -> tuple[Text, ...]:
    """One task, in the order of `COLUMNS`."""
    summary = item.summary
    medians = dict(item.baselines_ms)
    best = summary.best if summary else None
    hardest = item.hardest
    over, style = NOTHING, ""
    if hardest is not None:
        low, high = hardest.ci95
        over, style = f"{ratio(hardest.ratio)} [{low:.2f}, {high:.2f}]", "green" if low > 1 else ""
    return (
        Text(_name(item)),
        Text(_ms(medians.get("eager"))),
        Text(_ms(medians.get("compile"))),
        Text(_best(best)),
        Text(ratio(item.over("eager")) if item.over("eager") else NOTHING),
        Text(over, style=style),
        Text(percent(best.limit_fraction) if best else NOTHING),
        Text(one_line(_end(item), 120), style="yellow" if item.doubt or item.words else ""),
    )


def summary_of(outcomes: Sequence[Outcome]) -> RenderableType:
    """All lines, and the sums; tasks that prove little apart, with the reasons."""
    table = _table("", COLUMNS)
    for item in outcomes:
        table.add_row(*row_cells(item))
    honest, badged = sound(outcomes)
    parts: list[RenderableType] = [table, *_sums("", figures(honest))]
    if badged:
        parts += [Text(f"{_name(item)}: {_reason(item)}", style="yellow") for item in badged]
        parts += _sums("of the tasks that a badge says prove little: ", figures(badged))
    if (spent := pace(outcomes)) is not None:
        parts += [Text(""), _pace_table(spent)]
    return Group(*parts, _conditions(outcomes))


def contrast_table(found: Contrast, first: str, second: str) -> RenderableType:
    """Two result files, task by task."""
    table = _table("", ("task", plain(first), plain(second), "change", ""))
    for line in found.lines:
        table.add_row(
            Text(one_line(line.file.removesuffix(".py"), 40)),
            ratio(line.first) if line.first else NOTHING,
            ratio(line.second) if line.second else NOTHING,
            ratio(line.change) if line.change else NOTHING,
            "" if line.change is None or line.apart else "within the noise",
        )
    words = [f"geometric mean of the changes {ratio(found.change)}"] if found.change else []
    for name, only in ((first, found.only_first), (second, found.only_second)):
        if only:
            words.append(f"only in {plain(name)}: {len(only)}, such as {plain(only[0])}")
    return Group(table, *(Text(line) for line in (*words, *map(plain, found.caveats))))


def _sums(prefix: str, found: Figures) -> list[RenderableType]:
    head = (
        f"{prefix}{count(found.tasks, 'task')}, {found.searched} searched, "
        f"{found.correct} with a correct "
        f"candidate, {found.improved} faster than every baseline, {found.not_settled} not settled; "
        f"{seconds(found.seconds)}"
    )
    lines = [head]
    if found.floor_fraction_median is not None:
        lines.append(f"median of the floor's fraction {percent(found.floor_fraction_median)}")
    for name, counts in (
        ("timed beside", found.beside), ("without", found.absent), ("clock", found.clocks),
        ("method", found.methods), ("precision", found.precisions), ("called", found.modes),
        ("not searched", found.ends),
    ):  # fmt: skip
        if counts:
            lines.append(f"{name}: " + ", ".join(f"{plain(what)} {n}" for what, n in counts))
    if found.parted:
        lines.append(f"searched region by region: {found.parted}")
    if not found.correct:
        return [Text(line) for line in lines]
    table = _table(
        "", ("against", "compared", "geometric mean", "median", "lowest",
             *(f"fast_{p:g}" for p, _ in found.columns[0].fast_p)),
    )  # fmt: skip
    for column in (one for one in found.columns if one.compared):
        table.add_row(
            column.baseline,
            str(column.compared),
            *(ratio(value) if value else NOTHING
              for value in (column.geometric_mean, column.median, column.lowest)),
            *(percent(share) for _, share in column.fast_p),
        )  # fmt: skip
    return [*(Text(line) for line in lines), table]


def _pace_table(found: Pace) -> Table:
    """Where the time went; steps that take less than a hundredth of all stay in their part."""
    names = (f"seconds of {found.tasks} tasks", "median", "largest", "of all", "processors")
    table = _table("", names)
    for part, steps in found.parts:
        counted = bool(found.seconds) and part.name != BESIDE
        long = [step for step in steps if step.seconds >= 0.01 * found.seconds]
        for indent, share in (("", part), *(("  ", step) for step in long if len(steps) > 1)):
            table.add_row(
                indent + plain(share.name.split(": ")[-1]),
                f"{share.median_s:.2f}",
                f"{share.largest_s:.2f}",
                percent(share.seconds / found.seconds) if counted else NOTHING,
                f"{share.cpu_s:.1f}" if share.cpu_s else NOTHING,
            )
    table.columns[0].justify = "left"
    return table


def _conditions(outcomes: Sequence[Outcome]) -> Text:
    """Under which terms; more than one of a kind is said."""
    devices = {item.summary.hardware.name for item in outcomes if item.summary}
    terms = {
        f"{item.terms.search or 'baselines only'}, seed {item.terms.seed}, "
        f"kernelwright {item.terms.kernelwright}, torch {item.terms.torch}"
        for item in outcomes
    }
    return Text("; ".join([*sorted(devices), *sorted(terms)]), style="dim")


def _end(item: Outcome) -> str:
    """How it ended, what of it was searched apart, how it is called, beside what it stands not."""
    without = f", without {', '.join(item.absent)}" if item.absent else ""
    searched, used = item.regions
    parted = f", {count(searched, 'region')}, {used} used" if searched else ""
    return f"{_words(item)}{parted}{IN_MODE[item.mode or 'eager']}{without}"


def _words(item: Outcome) -> str:
    if item.words:
        return f"{item.ended.replace('_', ' ')}: {item.words}"
    if item.summary and item.summary.status == "nothing_correct" and item.rejected:
        return f"{STATUS[item.summary.status]}: {one_line(item.rejected[0], 160)}"
    if item.doubt is not None:
        return item.doubt.words
    return STATUS[item.summary.status] if item.summary else item.ended


def _name(item: Outcome) -> str:
    return one_line(item.name.removesuffix(".py"), 40)


def _reason(item: Outcome) -> str:
    return "; ".join(one_line(b.words, 200) for b in item.badges if b.proves_little)


def _best(best: BestSummary | None) -> str:
    """The best's time; its label where it is not certified, as the other lines' are."""
    if best is None:
        return NOTHING
    label = f" ({best.timed})" if best.timed not in ("", "certified") else ""
    return f"{_ms(best.median_ms)}{label}"


def _ms(value: float | None) -> str:
    return milliseconds(value) if value else NOTHING


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(title=title or None, box=None, pad_edge=False)
    for name in names:
        table.add_column(
            name, justify="left" if name in ("task", "end", "against", "") else "right"
        )
    return table


SHOWN = 12


@contextmanager
def board(total: int, known: Sequence[Outcome]) -> Iterator["Board"]:
    """A board on stderr, taken away at the end."""
    console = remarks()
    made = Board(total, known, console)
    if not console.is_terminal:
        yield made
        return
    with Live(get_renderable=made.drawn, console=console, transient=True, refresh_per_second=4):
        yield made


class Board:
    """What is shown while a suite runs."""

    def __init__(self, total: int, known: Sequence[Outcome], console: Console) -> None:
        self._total, self._done = total, list(known)
        self._console = console
        self._present: dict[str, _Turn] = {}

    def begin(self, path: Path) -> Callable[[Event], None]:
        """A file's turn; gives who listens to its search."""
        turn = self._present[path.name] = _Turn()
        return turn.hear

    def end(self, outcome: Outcome) -> None:
        """A file is done."""
        self._done.append(outcome)
        self._present.pop(outcome.file, None)
        if not self._console.is_terminal:
            cells = ", ".join(cell.plain for cell in row_cells(outcome) if cell.plain != "-")
            self._console.print(
                Text(f"{len(self._done)} of {self._total}: {cells}"), soft_wrap=True
            )

    def drawn(self) -> Group:
        """The table as it is now."""
        table = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in ("task", "end") else "right")
        for item in self._done[-SHOWN:]:
            table.add_row(*row_cells(item))
        return Group(table, Text(self._status(), style="dim"))

    def _status(self) -> str:
        parts = [f"{len(self._done)} of {self._total} done"]
        for name, turn in self._present.items():
            took = seconds(time.monotonic() - turn.since_s)
            written = f"{count(turn.written, 'candidate')}, " if turn.written else ""
            parts.append(f"{one_line(Path(name).stem, 60)}: {turn.regions}{written}{took}")
        return "; ".join(parts)


@dataclass
class _Turn:
    """A file that is under way; who runs elsewhere does not say what was written."""

    since_s: float = field(default_factory=time.monotonic)
    written: int = 0
    waiting: set[str] = field(default_factory=set)
    found: int = 0

    def hear(self, event: Event) -> None:
        """Count what its search writes, and which of its regions had their turn."""
        self.written += isinstance(event, CandidateWritten)
        if isinstance(event, RegionsFound):
            self.waiting = {item.name for item in event.regions if item.state == "waiting"}
            self.found = len(self.waiting)
        if isinstance(event, RegionSearched):
            self.waiting.discard(event.region.name)

    @property
    def regions(self) -> str:
        """`3 of 12 regions, ` while they are searched."""
        if not self.waiting:
            return ""
        return f"{self.found - len(self.waiting)} of {count(self.found, 'region')}, "
